"""Writes the generated parts of the documentation: ``python docs/reference/generate.py``.

A generated part stands between ``<!-- begin: name -->`` and ``<!-- end: name -->``. The rest of the
page is written by hand. ``tests/test_docs.py`` fails if a part is outdated.
"""

from __future__ import annotations

import errno
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import click

import celery_dlq
from celery_dlq.api.groups import Groups
from celery_dlq.api.metrics import Recorder
from celery_dlq.api.requests import Requests
from celery_dlq.classify.builtin import cloud, databases, http, postgres, stdlib, stores
from celery_dlq.classify.builtin.known import ROWS
from celery_dlq.classify.table import Row
from celery_dlq.cli import dlq
from celery_dlq.metrics.families import STORE_FAMILIES, WORKER_FAMILIES, Family
from celery_dlq.redrive.operation import Operations
from celery_dlq.settings import Settings
from celery_dlq.worker.broker_limits import NOT_COVERED, NOT_RUN

HERE = Path(__file__).parent

#: The attributes of the dead-letter queue whose methods are API, too.
ROLES: Mapping[str, type] = {
    "redrives": Operations,
    "groups": Groups,
    "recorder": Recorder,
    "requests": Requests,
}

#: Methods that only the package's own parts of a worker call.
_OF_WORKERS = frozenset({
    "new_capture", "worker_starts", "worker_ends", "new_spool", "spool_apart", "make", "draft", "carry_on",
    "left", "approved", "approved_erasure",
})  # fmt: skip


def settings_table() -> str:
    """Every ``dlq_*`` setting."""
    rows = [
        (f"`dlq_{item.name}`", f"`{item.default!r}`", item.metadata["allowed"].words, item.metadata["text"])
        for item in fields(Settings)
    ]  # fmt: skip
    return table(("key", "default", "allowed", "meaning"), rows)


def commands(group: click.Group = dlq, path: tuple[str, ...] = ()) -> str:
    """Every command with its arguments and options."""
    context = click.Context(group)
    parts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            parts.append(commands(command, (*path, name)))
        elif command is not None:
            parts.append(_command(command, " ".join((*path, name))))
    return "\n\n".join(parts)


def _command(command: click.Command, name: str) -> str:
    arguments = [item for item in command.params if isinstance(item, click.Argument)]
    usage = " ".join(("dlq", name, *(item.metavar or str(item.name) for item in arguments)))
    options = [_option(item) for item in command.params if isinstance(item, click.Option)]
    text = inspect.cleandoc(command.help or "")
    return "\n\n".join(filter(None, (f"### `{usage}`", text, "\n".join(options))))


def _option(option: click.Option) -> str:
    value = "" if option.is_flag else f" {_metavar(option)}"
    notes = [
        *(["required"] if option.required else []),
        *([f"default: `{option.default}`"] if option.show_default else []),
    ]
    ending = f" ({', '.join(notes)})" if notes else ""
    return f"- `{', '.join(option.opts)}{value}`: {option.help}{ending}"


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return f"[{'|'.join(option.type.choices)}]"
    return option.metavar or option.type.name.upper()


def metrics_of(families: Iterable[Family]) -> str:
    """The metrics of one place."""
    rows = [
        (f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.text)
        for one in families
    ]
    return table(("metric", "type", "labels", "meaning"), rows)


def python_api() -> str:
    """Everything in ``celery_dlq.__all__``, with its public methods."""
    parts = []
    for name in celery_dlq.__all__:
        parts.append(_documented(name, getattr(celery_dlq, name)))
        if name == "DeadLetterQueue":
            parts += (_role(role, item) for role, item in ROLES.items())
    return "\n\n".join(parts)


def _role(name: str, item: type) -> str:
    return "\n\n".join((f"#### `dlq.{name}`", _first_words(item), "\n".join(_methods(item))))


def _documented(name: str, item: Any) -> str:
    lines = [f"### `{name}`", _first_words(item)]
    if inspect.isclass(item) and issubclass(item, Enum):
        lines.append("Values: " + ", ".join(f"`{one.value}`" for one in item))
    elif inspect.isclass(item) and issubclass(item, Exception):
        pass
    else:
        lines.append(f"```\n{name}{_signature(item)}\n```")
        lines.append("\n".join(_methods(item)))
    return "\n\n".join(filter(None, lines))


def _methods(item: Any) -> Iterator[str]:
    bases = item.__mro__ if inspect.isclass(item) else ()
    ours = [base for base in bases if base.__module__.startswith("celery_dlq")]
    foreign = [base for base in bases if base not in ours]
    names = dict.fromkeys(name for base in ours for name in vars(base))
    for name in names:
        made = getattr(item, name)
        is_method = inspect.isfunction(made) and made.__doc__ and not name.startswith("_")
        # Celery defines those that a task overrides.
        if is_method and name not in _OF_WORKERS and not any(hasattr(one, name) for one in foreign):
            yield f"- `{name}{_signature(made)}`: {_first_words(made)}"


def _first_words(item: Any) -> str:
    said = inspect.cleandoc(item.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", said).replace("``", "`")


def _signature(item: Any) -> str:
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return ""
    kept = [
        one.replace(annotation=one.empty, default=_Default.of(one.default))
        for one in signature.parameters.values()
        if one.name != "self" and not one.name.startswith("_")
    ]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty))


class _Default(str):
    """A default as a person would write it."""

    __repr__ = str.__str__

    @classmethod
    def of(cls, value: Any) -> Any:
        """``value``, or a text for it that is the same in each run."""
        if isinstance(value, Enum):
            return cls(str(value))
        if is_dataclass(value) and not isinstance(value, type):
            return cls(f"{type(value).__name__}()" if value == type(value)() else "…")
        return cls("…") if inspect.isfunction(value) or repr(value) == "<factory>" else value


def rules_of(domain: str) -> str:
    """The rows of one domain of the built-in rules."""
    rows = [(f"`{row.rule}`", _verdict(row), "; ".join(_types(row.names))) for row in ROWS[domain]]
    return table(("rule", "verdict", "exceptions, and those derived from them"), rows)


def _verdict(row: Row) -> str:
    parts = [
        f"by {row.depends_on}" if row.depends_on else "",
        row.verdict.value if row.verdict else "",
    ]
    return ", else ".join(filter(None, parts))


def _types(names: Iterable[str]) -> Iterator[str]:
    """The dotted names, the classes of one module together, then whole packages."""
    by_module: dict[str, list[str]] = {}
    packages = [f"`{name}`" for name in names if name.endswith(".*")]
    for name in names:
        module, _, cls = name.rpartition(".")
        if cls != "*":
            by_module.setdefault(module, []).append(cls)
    for module, classes in by_module.items():
        listed = ", ".join(f"`{cls}`" for cls in classes)
        yield listed if module == "builtins" else f"{listed} of `{module}`"
    if packages:
        yield ", ".join(packages)


def codes() -> str:
    """The codes that mean transient."""
    names = sorted(errno.errorcode[code] for code in stdlib.TRANSIENT_ERRNOS)
    rows = [
        ("HTTP status", _listed(http.TRANSIENT_STATUSES)),
        ("`errno`, on Linux", _listed(names)),
        ("SQLSTATE", f"{_listed(postgres.TRANSIENT_SQLSTATES)}, and all that begin with 40"),
        ("MySQL error number", _listed(databases.MYSQL_NUMBERS)),
        ("Oracle error number", _listed(databases.ORACLE_NUMBERS)),
        ("SQL Server and DB-Lib number", _listed(databases.MSSQL_NUMBERS)),
        ("MongoDB code", _listed(stores.MONGO_CODES)),
        ("ClickHouse code", _listed(stores.CLICKHOUSE_CODES)),
        ("gRPC", _listed(cloud.GRPC_NAMES)),
        ("AWS, any case", _listed(cloud.AWS_CODES)),
        ("curl, in pycurl", _listed(http.CURL_CODES)),
        ("WebSocket close code", _listed(http.CLOSE_CODES)),
    ]
    return table(("code", "transient"), rows)


def brokers() -> str:
    """The line of each transport that does not keep every promise."""
    rows = [(f"`{name}`", why) for name, why in NOT_COVERED.items() if why]
    rows.append(("any that is not named here", NOT_RUN))
    covered = ", ".join(f"`{name}`" for name, why in NOT_COVERED.items() if not why)
    return f"Nothing on {covered}.\n\n{table(('driver', 'not covered'), rows)}"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in sorted(items, key=str))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(heads)]
    lines.append(["---"] * len(lines[0]))
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def parts() -> dict[str, dict[str, str]]:
    """The generated parts by file name, then by name."""
    return {
        "settings.md": {"settings": settings_table()},
        "cli.md": {"commands": commands()},
        "python.md": {"python": python_api()},
        "metrics.md": {
            "store": metrics_of(STORE_FAMILIES),
            "worker": metrics_of(WORKER_FAMILIES),
        },
        "brokers.md": {"brokers": brokers()},
        "rules.md": {
            **{domain: rules_of(domain) for domain in ROWS},
            "codes": codes(),
        },
    }


def generated(text: str, contents: dict[str, str]) -> str:
    """``text`` with its parts generated again.

    :raises ValueError: a part has no place in the text.
    """
    for name, content in contents.items():
        place = re.compile(f"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
        if not place.search(text):
            raise ValueError(f"there is no place for the part {name!r}; add its two comments")
        text = place.sub(lambda match, new=content: f"{match[1]}\n{new}\n\n{match[2]}", text)
    return text


def main() -> None:
    """Write all parts."""
    for name, contents in parts().items():
        path = HERE / name
        path.write_text(generated(path.read_text(encoding="utf-8"), contents), encoding="utf-8")


if __name__ == "__main__":
    main()
