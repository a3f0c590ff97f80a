"""The allowed values of settings, with the words for them in an error; reads values into a class of settings,
and describes the problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from celery_dlq.base.known import near_names
from celery_dlq.errors import SettingsError, page

#: The schemes of places that keep files for ever, each with the package that fsspec needs for it.
PACKAGES = {
    "file": "", "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs",
    "abfs": "adlfs", "abfss": "adlfs",
}  # fmt: skip


def is_archive_url(value: str) -> bool:
    """Whether ``value`` names a place for an archive: a known scheme with a bucket, or a whole path."""
    scheme, rest = _split(value)
    if scheme == "file":
        return rest.startswith("/") and bool(rest.strip("/"))
    # A chain of fsspec, such as simplecache::s3://…, would read back its own copy.
    return scheme in PACKAGES and "::" not in rest and bool(rest.strip("/"))


def _is_trace_url(value: str) -> bool:
    return value.startswith(("http://", "https://")) and "{trace_id}" in value


def archive_package(url: str) -> str:
    """The package that the scheme of ``url`` needs; empty if it needs none."""
    return PACKAGES.get(_split(url)[0], "")


def _split(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (scheme, rest) if separator else ("", url)


@dataclass(frozen=True)
class Allowed:
    """The condition on a value, and the words for it in an error."""

    words: str
    accepts: Callable[[Any], bool]


def number(low: float, high: float, unit: str = "") -> Allowed:
    """A number, of ``unit`` if given, the bounds included."""
    of_unit = f" of {unit}" if unit else ""
    return Allowed(
        f"a number{of_unit} from {low:.15g} to {high:.15g}",
        lambda value: is_number(value) and low <= value <= high,
    )


def whole(low: int, high: int) -> Allowed:
    """A whole number, the bounds included."""
    return Allowed(
        f"a whole number from {low} to {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


def refuse(subject: str, problems: Iterable[str], topic: str) -> None:
    """Raise an error with all ``problems`` of a value that a user has written, if there are any.

    :param subject: names the value.
    :param topic: the page of the documentation about it.
    :raises SettingsError: there are problems.
    """
    found = " ".join(problems)
    if found:
        raise SettingsError(f"{subject} is not valid. {found} See {page(topic)}.")


def is_number(value: object) -> bool:
    """Whether ``value`` is a number. ``True`` and ``False`` are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


SHARE = Allowed(
    "a number from 0 to 1, or None",
    lambda value: value is None or (is_number(value) and 0.0 <= value <= 1.0),
)
TEXT = Allowed("a non-empty string", lambda value: isinstance(value, str) and bool(value.strip()))
MAYBE_TEXT = Allowed("a string", lambda value: isinstance(value, str))
REDRIVE_TRACE = Allowed("'link' or 'continue'", lambda value: value in ("link", "continue"))
TRACE_URL = Allowed(
    "a URL that begins with http:// or https:// and has {trace_id}, or ''",
    lambda value: isinstance(value, str) and (not value or _is_trace_url(value)),
)
ARCHIVE_URL = Allowed(
    f"a URL such as s3://bucket/folder or file:///folder ({', '.join(PACKAGES)}), or None",
    lambda value: value is None or (isinstance(value, str) and is_archive_url(value)),
)
CLI_ACTS = Allowed("'do' or 'propose'", lambda value: value in ("do", "propose"))
REDRIVE_OPTION = Allowed(
    "'allow', 'approve' or 'never'", lambda value: value in ("allow", "approve", "never")
)
UNSENT = Allowed(
    "'raise', 'store' or 'commit'", lambda value: value in ("raise", "store", "commit")
)
APPROVAL = Allowed(
    "a celery_dlq.Approval object, or None",
    lambda value: value is None or _is_a(value, "Approval"),
)
BOOLEAN = Allowed("True or False", lambda value: isinstance(value, bool))
NAMES = Allowed(
    "a list of strings",
    lambda value: _is_list(value) and all(isinstance(item, str) and item for item in value),
)
MAYBE_NAMES = Allowed(
    "a list of strings, or None", lambda value: value is None or NAMES.accepts(value)
)
NAMESPACE = Allowed(
    "a name of 1 to 64 letters, digits, '.', '-' and '_'; ''; a list of such names; or '*'",
    lambda value: value == "*" or all(map(_is_namespace, (_is_list(value) and value) or [value])),
)
EXCEPTIONS = Allowed(
    "a list of exception classes or their dotted names",
    lambda value: _is_list(value) and all(_names_exception(item) for item in value),
)
#: The kinds of events for which hooks are called.
HOOK_KINDS = (
    "dead_letter", "new_group", "regression", "operation_aborted", "auto_redrive_suspended",
    "worker_stalled", "redriven", "resolved", "audit",
)  # fmt: skip
HOOKS = Allowed(
    f"a dict of lists of callables or their dotted names, by {', '.join(HOOK_KINDS[:-1])} or "
    f"{HOOK_KINDS[-1]}; or None",
    lambda value: (
        value is None or (isinstance(value, Mapping) and all(map(_is_hooks, value.items())))
    ),
)
#: What a person may do in Flower and by REST. Every other role includes the first one.
ROLES = ("read", "triage", "act", "approve", "erase")
#: Everyone, a domain, or the name or the address of a user.
_WHO = re.compile(r"\*|@[^@*\s]+|(?!(?i:group:)|[@\s])[^*]*[^*\s]")
ROLES_OF_USERS = Allowed(
    f"a dict of lists by {', '.join(ROLES[:-1])} or {ROLES[-1]}, with '*', domains such as '@example.com', "
    "and names or addresses of users, but no 'group:', because Flower knows no groups; or None",
    lambda value: (
        value is None or (isinstance(value, Mapping) and all(map(_is_role, value.items())))
    ),
)
MAYBE_CALLABLE = Allowed(
    "a callable or its dotted name, or None",
    lambda value: value is None or _names_callable(value),
)
ENCRYPTION_KEYS = Allowed(
    "a dict of keys in base64 by name, a callable that returns one or its dotted name, or None",
    lambda value: value is None or isinstance(value, Mapping) or _names_callable(value),
)
RULES = Allowed(
    "a list of celery_dlq.Rule objects",
    lambda value: _is_list(value) and all(hasattr(item, "verdict") for item in value),
)
RETENTION = Allowed(
    "a celery_dlq.Retention object, or None",
    lambda value: value is None or _is_a(value, "Retention"),
)


def _is_a(value: object, name: str) -> bool:
    """Whether ``value`` is of the class ``name`` of this package. Rooms above this one define it."""
    return any(
        kind.__name__ == name and kind.__module__.startswith("celery_dlq.")
        for kind in type(value).__mro__
    )


def named_objects(kind: str) -> Allowed:
    """A list of objects of the class ``kind`` of this package, with different names."""

    def accepts(value: Any) -> bool:
        if not _is_list(value):
            return False
        names = [item.name for item in value if _is_a(item, kind)]
        return len(value) == len(names) == len(set(names))

    return Allowed(f"a list of celery_dlq.{kind} objects with different names", accepts)


def _is_namespace(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{0,64}", value) is not None


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _names_exception(item: object) -> bool:
    if isinstance(item, type):
        return issubclass(item, BaseException)
    return isinstance(item, str) and bool(item)


def _is_hooks(item: tuple[object, Any]) -> bool:
    kind, hooks = item
    return kind in HOOK_KINDS and _is_list(hooks) and all(map(_names_callable, hooks))


def _is_role(item: tuple[object, Any]) -> bool:
    role, users = item
    return role in ROLES and NAMES.accepts(users) and all(map(_WHO.fullmatch, users))


def _names_callable(item: object) -> bool:
    return callable(item) or (isinstance(item, str) and bool(item))


#: Overrides ``dlq_store_url``, as ``CELERY_BROKER_URL`` overrides ``broker_url``.
STORE_URL_VARIABLE = "CELERY_DLQ_STORE_URL"

#: The settings that an environment variable overrides, each with its variable.
_FROM_VARIABLES = {"store_url": STORE_URL_VARIABLE}

#: The settings whose values are not shown.
_SECRET = frozenset({"store_url", "search_redacted_key", "encryption_keys"})

PREFIX = "dlq_"
_DOCS = page("settings")

#: How similar the name of an environment variable must be to a known one to count as a typing error. Other
#: variables with our prefix belong to the user, whose configuration may read them.
_ALIKE = 0.8

T = TypeVar("T")


def allowed_values(definition: type[Any]) -> dict[str, Allowed]:
    """The allowed values by the name of each setting."""
    return {item.name: item.metadata["allowed"] for item in fields(definition)}


def given_settings(conf: Any) -> dict[str, str]:
    """The settings in ``conf``: the key as the user wrote it, by the setting's name without the prefix.
    Under a namespace (Django: ``CELERY_DLQ_…``) Celery leaves the keys as they are and translates
    look-ups."""
    keys = [str(key) for key in conf]  # loads a configuration that is still pending, and its prefix
    namespace = str(getattr(conf, "prefix", None) or "").lower()
    found = {}
    for key in keys:
        name = key.lower().removeprefix(namespace)
        if name.startswith(PREFIX):
            found[name.removeprefix(PREFIX)] = key
    return found


def read_values(
    definition: type[T], values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[T, tuple[str, ...]]:
    """The settings, with the default in place of each invalid value; and the problems."""
    chosen = dict(values)
    problems = _misspelt_variables(environ)
    for name, variable in _FROM_VARIABLES.items():
        if environ.get(variable):
            chosen[name] = environ[variable]
    for name, allowed in allowed_values(definition).items():
        problem = name in chosen and problem_of(name, chosen[name], allowed)
        if problem:
            problems.append(problem)
            del chosen[name]
    if chosen.get("subject") is not None and chosen.get("encryption_keys") is None:
        problems.append(
            "dlq_subject needs dlq_encryption_keys: a person's letters are erased by destroying their key. "
            f"See {page('encryption')}."
        )
        del chosen["subject"]
    settings: Any = definition(**chosen)
    base, cap = settings.retry_base, settings.retry_cap
    if base > cap:
        problems.append(
            f"dlq_retry_base ({base:g} s) is above dlq_retry_cap ({cap:g} s); raise dlq_retry_cap or lower "
            f"dlq_retry_base. See {_DOCS}."
        )
        chosen = {name: chosen[name] for name in chosen.keys() - {"retry_base", "retry_cap"}}
        settings = definition(**chosen)
    return settings, tuple(problems)


def problem_of(name: str, value: Any, allowed: Allowed) -> str:
    """Why ``name`` cannot have ``value``; empty if it can."""
    try:
        accepted = allowed.accepts(value)
    except Exception as error:  # noqa: BLE001 - a value of the user may raise anything
        return f"{PREFIX}{name} cannot be read: {error}. See {_DOCS}."
    if accepted:
        return ""
    shown = "********" if name in _SECRET else repr(value)
    return f"{PREFIX}{name} = {shown} is not {allowed.words}. See {_DOCS}."


def unknown_setting(name: str, key: str, names: Iterable[str]) -> str:
    """The error for ``key``, which the user wrote, and which is not a setting."""
    near = near_names(name, names)
    if not near:
        return f"Unknown setting {key!r}: it is not a setting of celery_dlq. See {_DOCS}."
    meant = near[0].upper() if key.isupper() else near[0]
    beginning = key[: len(key) - len(name)]
    return f"Unknown setting {key!r}: did you mean {beginning + meant!r}? See {_DOCS}."


def _misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """The error for a variable whose name is similar to that of the store's URL. No code would read it, and
    letters would go to the default store."""
    if STORE_URL_VARIABLE in environ:
        return []
    prefix, _, rest = STORE_URL_VARIABLE.partition("STORE")
    ours = [key for key in environ if key.upper().startswith(prefix)]
    endings = {key.upper().removeprefix(prefix): key for key in sorted(ours)}
    return [
        f"The environment variable {endings[near]} is not read: did you mean {STORE_URL_VARIABLE}? "
        f"See {_DOCS}."
        for near in near_names("STORE" + rest, endings, alike=_ALIKE)[:1]
    ]
