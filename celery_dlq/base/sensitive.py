"""The one list of names and patterns of secrets, for arguments, headers, messages and tracebacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

REDACTED = "[redacted]"

#: Parts of names whose values are hidden, however they are written: ``api_key`` is in ``stripeApiKey``
#: and in ``X-API-Key``. Parts of up to four characters match whole words only: ``pass`` is in
#: ``DB_PASS``, but not in ``compass``. ``dlq_redact`` adds to them.
SENSITIVE = (
    "password", "passwd", "passphrase", "passcode", "pwd", "pass", "dbpass", "userpass", "secret", "token",
    "api_key", "access_key", "private_key", "signing_key", "encryption_key", "authorization", "cookie",
    "credential", "dsn", "card_number", "cvv", "cvc", "iban", "ssn",
)  # fmt: skip

#: The most characters of a part that matches whole words only.
_WORD = 4

#: Names that are cached with their answer, because each run of a task has the same names.
_REMEMBERED = 4_096

#: The most characters of a name that are read.
_NAME_LIMIT = 256

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")

#: Words at the end of names that add no meaning.
_ENDINGS = frozenset({"key", "keys", "value", "string", "header"})

#: Whether a name stands for a secret.
IsSensitive = Callable[[str], bool]


def names_of_secrets(extra: Iterable[str] = ()) -> IsSensitive:
    """Recognises the names of secrets.

    :param extra: further parts, in addition to :data:`SENSITIVE`.
    """
    parts = sorted({"".join(_words(part)) for part in (*SENSITIVE, *extra)} - {""})
    words = frozenset(part for part in parts if len(part) <= _WORD)
    anywhere = re.compile("|".join(re.escape(part) for part in parts if part not in words))

    @lru_cache(maxsize=_REMEMBERED)
    def is_sensitive(name: str) -> bool:
        found = _words(name[:_NAME_LIMIT])
        return not words.isdisjoint(found) or anywhere.search("".join(found)) is not None

    return is_sensitive


def stands_for_secret(name: str, is_sensitive: IsSensitive) -> bool:
    """Whether ``name``, the first of a pair, is the name of the second. Two arguments may look like a
    pair, such as ``("password_reset", 17)``, so the name has to end with the part."""
    if not is_sensitive(name):
        return False
    *before, last = _words(name[:_NAME_LIMIT]) or [""]
    return last in _ENDINGS or is_sensitive(last) or not is_sensitive("_".join(before))


def _words(name: str) -> list[str]:
    """The words of a name in any style, in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]


# The mark of ``clip()`` and ``clip_middle()``. Texts are cut before their secrets are hidden, because a whole
# text may be very long; so a secret may also end at this mark, and then be too short for its pattern.
_CUT = r"(?=\n?… \[\d)"

# A password ends at the last @ before the path. Some passwords contain a slash, so a path with an @ after a
# port must not be taken for a password. Lengths are limited where a text might take long otherwise.
_URL = re.compile(
    r"(?P<start>\b[A-Za-z][A-Za-z0-9+.\-]{1,30}://)"
    r"(?:"
    r"(?P<user>[^\s/?#:@\"'<>]{0,256}):"
    rf"(?:(?!\d{{1,5}}(?:[/?#]|…))(?:[^\s/?#\"'<>…]+|[^\s@\"'<>…]{{1,512}}){_CUT}"
    r"|[^\s/?#\"'<>]+@|(?!\d{1,5}[/?#])[^\s@\"'<>]{1,512}@)"
    rf"|(?:(?<=https://)|(?<=http://))[^\s/?#:@\"'<>…]+(?:@|{_CUT})"
    r")"
)

_KEY, _LINES = r"PRIVATE KEY-----", r"[^-]*(?:-(?!----)[^-]*)*"
#: Lines without another cut, so that a text with many cuts is searched once.
_UNCUT = r"[^-…]*(?:-(?!----)[^-…]*)*"

_TOKEN = re.compile(
    # RFC 6750 and 7617. Words of prose may follow them, too: "Basic authentication failed".
    r"(?P<scheme>\b(?:[Bb]earer|BEARER|[Bb]asic|BASIC)\s{1,3})"
    rf"(?:(?![A-Za-z]?[a-z]*\b(?![\w.~+/=\-]))[\w.~+/=\-]{{6,}}|[\w.~+/=\-]{{1,64}}{_CUT})"
    # JSON Web Tokens, and tokens that services mark as their secrets.
    r"|\beyJ[\w\-]{8,4096}\.[\w\-]{2,}(?:\.[\w\-]*){0,3}"
    r"|\b(?:gh[pousr]_\w{16,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|xox[abeoprs]-[\w\-]{10,}"
    r"|[sr]k_(?:live|test)_\w{10,}|sk-[\w\-]{20,}|whsec_[\w+/=]{16,})"
    r"|\b(?:eyJ|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|[sr]k_(?:live|test)_|sk-|whsec_)"
    rf"[\w.+/=\-]{{0,64}}{_CUT}"
    # The lines of a key end with a dash. If its middle was left out, its end is a secret, too.
    rf"|(?:-----BEGIN [A-Z ]{{0,32}}{_KEY}|(?<=left out\] …\n)(?={_UNCUT}-----END [A-Z ]{{0,32}}{_KEY}))"
    rf"{_LINES}(?:-----END [A-Z ]{{0,32}}{_KEY})?"
)

#: A part of each token, by a character of it that few texts contain. Searching for the parts is much faster.
_MARKS = {
    "": ("earer", "asic", "EARER", "ASIC", "eyJ"),
    "_": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "k_live_", "k_test_", "whsec_"),
    "-": ("glpat-", "xox", "sk-", "PRIVATE KEY--"),
}

#: The number of characters of the shortest token.
_SHORTEST_TOKEN = 12

# A quote after a backslash that is not its own belongs to the value, or may do so.
_BEGIN, _UP_TO = r"b?(?P<{0}>\\{{0,3}}[\"'])", r"(?:(?!(?<!\\)(?P={0}))[^\n])*"
_QUOTED = rf"{_BEGIN.format('quote')}(?P<quoted>{_UP_TO.format('quote')})(?<!\\)(?P=quote)"
# Its end is cut off.
_OPEN = rf"{_BEGIN.format('open')}{_UP_TO.format('open')}(?![^\n])"

# A name and a sign: in JSON, in the text of a Python object, in a query, in a DSN, in a header, after an
# option of a command. The value follows.
_NAME = re.compile(
    r"(?<![\w.\-])(?P<name>-{0,2}[A-Za-z_][\w.\-]{0,99})"
    r"(?P<sign>(?:\\{0,3}[\"'])?[ \t]?(?:=>|=(?!=)|:(?![:=]|//))[ \t]{0,2})"
)
_VALUE = re.compile(
    rf"{_QUOTED}|{_OPEN}"
    r"|(?P<bracket>[\[{(](?!redacted\]))"
    r"|(?P<plain>(?!\[redacted\])"
    r"(?:(?:[Bb]earer|[Bb]asic|[Dd]igest|[Tt]oken|[Nn]egotiate)[ \t]+)?[^\s\"'<>,;&)\]}]{1,256})"
)
_REST = re.compile(r"[^\s\"'<>,;&)\]}]*")

# ["name", "value"], and {"name": "API_KEY", "value": "…"}.
_PAIR = re.compile(
    r"(?P<start>(?:[\[(] ?|(?:[Nn]ame|[Kk]ey)\\{0,3}[\"']: ?)b?(?P<mark>\\{0,3}[\"'])"
    r"(?P<name>[A-Za-z_][\w.\-]{0,99})(?P=mark), ?(?P<key>(?P=mark)[Vv]alue(?P=mark): ?)?)"
    rf"(?:{_OPEN}|{_BEGIN.format('quote')}{_UP_TO.format('quote')}(?P=quote)(?(key)|(?= ?[\])]|,? ?… \[\d)))"
)

_OPTION = re.compile(
    r"(?<![\w.\-])(?P<start>(?P<name>--[A-Za-z][\w\-]{1,99})(?:[\"'],)? )"
    rf"(?:{_QUOTED}|{_OPEN}|(?P<value>[^\s\"'\-][^\s\"']*))"
)

_COOKIES = re.compile(r"(?i)(?<![\w.\-])((?:set-)?cookie: ?)[^\n\"']+")

# In prose, these words are rarely followed by a colon.
_PLAIN_NAMES = frozenset({"password", "passwd", "pwd", "passphrase", "authorization"})

#: Values that are not secrets.
_NOTHING = frozenset(
    {"None", "none", "null", "True", "true", "False", "false", "''", '""', REDACTED}
)

# A frame of a traceback, with the lines of source under it.
_FRAME = re.compile(r'^[ ]{2,}File "[^\n]*\n(?:[ ]{4,}[^\n]*(?:\n|\Z))*', re.MULTILINE)

#: The number of characters of the shortest text that may hold a secret with its name.
_SHORTEST = 5

_BRACKET = re.compile(r"[\[{(]|[\]})]")


def hide_secrets(text: str, is_sensitive: IsSensitive) -> str:
    """``text`` without likely secrets, by their pattern or their name."""
    if len(text) < _SHORTEST:
        return text
    if ":" in text or "=" in text:
        text = _hide_passwords(_hide_named(text, is_sensitive))
    if "," in text:
        text = _PAIR.sub(lambda match: _pair_without_secret(match, is_sensitive), text)
    if "--" in text:
        text = _OPTION.sub(lambda match: _option_without_secret(match, is_sensitive), text)
    return _hide_tokens(text)


def hide_in_traceback(text: str, is_sensitive: IsSensitive) -> str:
    """``text``, a traceback, without secrets. In lines of source, values are often names of variables,
    so only literal values are hidden."""
    parts, end = [], 0
    for frame in _FRAME.finditer(text):
        parts.append(hide_secrets(text[end : frame.start()], is_sensitive))
        source = _hide_named(frame[0], is_sensitive, only_quoted=True)
        parts.append(_hide_tokens(_hide_passwords(source)))
        end = frame.end()
    parts.append(hide_secrets(text[end:], is_sensitive))
    return "".join(parts)


def _hide_passwords(text: str) -> str:
    return _URL.sub(_without_password, text) if "://" in text else text


def _hide_tokens(text: str) -> str:
    if len(text) < _SHORTEST_TOKEN:
        return text
    for character, marks in _MARKS.items():
        if character in text:
            for mark in marks:
                if mark in text:
                    return _TOKEN.sub(lambda match: f"{match['scheme'] or ''}{REDACTED}", text)
    return text


def _hide_named(text: str, is_sensitive: IsSensitive, *, only_quoted: bool = False) -> str:
    if not only_quoted and ("ookie" in text or "OOKIE" in text):
        text = _COOKIES.sub(rf"\1{REDACTED}", text)
    parts: list[str] = []
    done, found = 0, _NAME.search(text)
    while found is not None:
        end = found.end()
        if is_sensitive(found["name"]):
            shown, end = _without_value(text, found, only_quoted=only_quoted)
            parts += (text[done : found.end()], shown)
            done = end
        # The value of a name that is not a secret's may contain secrets.
        found = _NAME.search(text, end)
    return "".join([*parts, text[done:]])


def _without_value(text: str, found: re.Match[str], *, only_quoted: bool) -> tuple[str, int]:
    """The shown part of the value after a name, and where the value ends."""
    start = found.end()
    value = _VALUE.match(text, start)
    if value is None or value["quoted"] == "":
        return "", start
    if value["quote"]:
        return f"{value['quote']}{REDACTED}{value['quote']}", value.end()
    if value["open"] or (value["bracket"] and not only_quoted):
        return REDACTED, _end_of_brackets(text, start) if value["bracket"] else value.end()
    if only_quoted or value["plain"] in _NOTHING or not _is_value(found, value["plain"]):
        return "", start
    rest = _REST.match(text, value.end())
    return REDACTED, rest.end() if rest else value.end()


def _end_of_brackets(text: str, start: int) -> int:
    depth = 0
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found[0] in "[{(" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _is_value(found: re.Match[str], plain: str) -> bool:
    """Whether ``plain`` is the value of the name. Otherwise it is the next word of a sentence, such as in
    ``invalid token: expected a comma``."""
    name, sign = found["name"], found["sign"]
    if sign == "=" or "-" in name or name.lower() in _PLAIN_NAMES:
        return True
    is_class = "." in name or not (name.islower() or name.isupper() or name.istitle())
    is_like_one = len(plain) > _WORD and any(char.isdigit() for char in plain)
    return not is_class and (is_like_one or plain.endswith("…"))  # the digits may be cut off


def _without_password(match: re.Match[str]) -> str:
    user, end = match["user"], "@" if match[0].endswith("@") else ""
    return f"{match['start']}{'' if user is None else user + ':'}{REDACTED}{end}"


def _pair_without_secret(match: re.Match[str], is_sensitive: IsSensitive) -> str:
    if not stands_for_secret(match["name"], is_sensitive):
        return match[0]
    return f"{match['start']}{_quoted(match)}"


def _option_without_secret(match: re.Match[str], is_sensitive: IsSensitive) -> str:
    # In a sentence about the option, the option is followed by a word.
    if (match["value"] or "").isalpha() or not is_sensitive(match["name"]):
        return match[0]
    return f"{match['start']}{_quoted(match)}"


def _quoted(match: re.Match[str]) -> str:
    return f"{match['quote'] or match['open'] or ''}{REDACTED}{match['quote'] or ''}"
