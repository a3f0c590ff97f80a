"""Failures with known causes: what each recipe for groups is measured on.

A case raises one failure each time, as user code or a library under it would, with random names, cities,
numbers, ids and languages. It notes its true cause in ``random.cause``: 0, 1, … below ``Case.causes``.

    for case in CASES:
        for cause, exc in failures(case, 150, seed=1):
            ...  # exc has its traceback, from the case's own function inwards
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import enum
import errno
import functools
import json
import linecache
import operator
import pickle
import re
import socket
import sqlite3
import ssl
import string
import subprocess
import sys
import sysconfig
import threading
import types
import xml.etree.ElementTree
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from random import Random

NAMES = (
    "Ada",
    "Grace Hopper",
    "Zoë",
    "O'Brien",
    "Müller-Lüdenscheidt",
    "李雷",
    "Иван",
    "van der Berg",
)
CITIES = ("Leeds", "São Paulo", "Köln", "New York", "Kyiv", "东京", "Aix-en-Provence", "Reading")
WORDS = ("invoice", "chair", "urgent", "blue", "weekly", "left", "gold", "draft", "second", "EUR")
LETTERS = string.ascii_letters + string.digits


@dataclasses.dataclass(frozen=True)
class Case:
    """Failures that belong to ``causes`` groups."""

    name: str
    #: Raises one failure. ``random.cause`` is the number of its cause then.
    raises: Callable[[Random], None]
    #: How many true causes there are: raise statements, calls into a library, or error codes.
    causes: int
    #: Groups by Sentry's default grouping (:func:`sentry_group`) in 150 failures with seed 1.
    sentry: int
    #: Why there are this many causes, or why Sentry finds another number.
    note: str


CASES: list[Case] = []


def case(
    name: str, causes: int, sentry: int, note: str, *, needs: str = "", when: bool = True
) -> Callable[[Callable[[Random], None]], Callable[[Random], None]]:
    """Add the decorated function to ``CASES``, if the library that it ``needs`` is installed."""

    def add(raises: Callable[[Random], None]) -> Callable[[Random], None]:
        if when and (not needs or find_spec(needs)):
            CASES.append(Case(name, raises, causes, sentry, note))
        return raises

    return add


def failures(case: Case, count: int = 150, seed: int = 1) -> Iterator[tuple[int, BaseException]]:
    """The number of the true cause, and the exception, of ``count`` failures."""
    random = Random(seed)
    for _ in range(count):
        random.cause = 0
        try:
            case.raises(random)
        except BaseException as exc:
            # Without the frame of this function, which a worker does not have.
            outer = exc.__traceback__
            yield random.cause, exc.with_traceback(outer and outer.tb_next)
        else:
            raise RuntimeError(f"{case.name!r} has not raised")


# ---- Sentry's default grouping, as its documentation describes it

_PARAMETERS = (
    (r"[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(?:\.[\w-]+)*", "<email>"),
    (r"\b(?:https?|wss?|ftp)://\S+", "<url>"),
    (r"\b(?:[\w-]+\.)+(?:com|org|net|io|de|uk)\b", "<hostname>"),
    (r"\b(?:\d{1,3}\.){3}\d{1,3}\b", "<ip>"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?", "<date>"),
    (r"\b\d+(?:\.\d+)?(?:ms|s)\b", "<duration>"),
    (r"\b0x[0-9a-fA-F]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,128}\b", "<hex>"),
    (r"-?\b\d+\.\d+\b", "<float>"),
    (r"-?\b\d{1,7}\b", "<int>"),
    (r"(?<==)'[^']+'|(?<==)\"[^\"]+\"", "<quoted_str>"),
    (r"(?<==)(?:[Tt]rue|[Ff]alse)", "<bool>"),
)
_FOREIGN = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def sentry_group(exc: BaseException) -> str:
    """The group of ``exc`` by Sentry's default grouping.

    All exceptions of the chain count, each with its type and its in-app frames (module, function, line of
    code); a frame that repeats counts once. An exception without such frames counts with its message,
    whose parameters are replaced; if none of the chain has any, all frames count.
    https://docs.sentry.io/concepts/data-management/event-grouping/
    """
    return repr(_sentry_chain(exc, any(_frames(one, in_app=True) for one in _chain(exc))))


def _sentry_chain(exc: BaseException, in_app: bool) -> list[object]:
    return [_sentry_one(one, in_app) for one in _chain(exc)]


def _sentry_one(exc: BaseException, in_app: bool) -> object:
    own = [type(exc).__name__, _frames(exc, in_app) or _parameterised(str(exc))]
    members = getattr(exc, "exceptions", ())
    if not isinstance(members, tuple):
        return own
    parts = sorted({repr(_sentry_chain(one, in_app)) for one in members})
    # A group whose members are all equal is grouped as one of them.
    return parts[0] if len(parts) == 1 else [own, *parts] if parts else own


def _chain(exc: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while exc is not None and exc not in found:
        found.append(exc)
        exc = exc.__cause__ if exc.__suppress_context__ else exc.__context__
    return found


def _frames(exc: BaseException, in_app: bool) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    tb, last = exc.__traceback__, None
    while tb is not None:
        code = tb.tb_frame.f_code
        place = (code.co_filename, tb.tb_lineno, code.co_name)
        if place != last and not (in_app and code.co_filename.startswith(_FOREIGN)):
            line = linecache.getline(code.co_filename, tb.tb_lineno, tb.tb_frame.f_globals)
            line = "" if len(line) > 120 else " ".join(line.split())
            found.append((tb.tb_frame.f_globals.get("__name__", ""), code.co_name, line))
        last, tb = place, tb.tb_next
    return found[-100:]


def _parameterised(message: str) -> str:
    for pattern, name in _PARAMETERS:
        message = re.sub(pattern, name, message)
    return message


# ---- Chance


def cause(random: Random, causes: int) -> int:
    """Choose the true cause of this failure, and note it."""
    random.cause = random.randrange(causes)
    return random.cause


def name(random: Random) -> str:
    return random.choice(NAMES)


def city(random: Random) -> str:
    return random.choice(CITIES)


def number(random: Random) -> int:
    return random.randrange(10 ** random.randrange(1, 8))


def email(random: Random) -> str:
    return f"{random.choice(WORDS)}.{number(random)}@{random.choice(WORDS)}.example.org"


def uuid(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def key(random: Random, length: int = 8) -> str:
    return "".join(random.choices(LETTERS, k=length))


def url(random: Random) -> str:
    return f"https://api.example.com/v1/{random.choice(WORDS)}/{name(random)}/{number(random)}"


# ---- Own code, one raise


@case("own message with bare names", 1, 1, "one raise; nothing in the message is quoted")
def bare_names(random: Random) -> None:
    raise LookupError(f"no customer called {name(random)} lives in {city(random)}")


@case("own message with bare keys", 1, 1, "one raise; ids such as ord_9fK3aZ look like words")
def bare_keys(random: Random) -> None:
    raise ValueError(
        f"order ord_{key(random)} of cus-{key(random, 5)} is in state {key(random, 3)}"
    )


@case("money and dates in words", 1, 1, "one raise; separators, currency and month vary")
def money(random: Random) -> None:
    day = datetime.date(2026, random.randrange(1, 13), random.randrange(1, 29)).strftime("%d %B %Y")
    price = f"{number(random):,}".replace(",", random.choice(",. '"))
    raise ValueError(
        f"paid {price} {random.choice(('€', 'USD', 'kr', '£'))} on {day}, which is late"
    )


@case("singular and plural", 1, 1, "one raise; the words around the number vary")
def plural(random: Random) -> None:
    count = random.randrange(1, 4)
    what = "1 order is" if count == 1 else f"{count} orders are"
    raise RuntimeError(f"{what} without an address")


@case("three languages", 1, 1, "one raise, whose message is translated for the user")
def languages(random: Random) -> None:
    text = random.choice(("Der Kunde {} ist unbekannt", "Le client {} est inconnu", "{} 不存在"))
    raise LookupError(text.format(name(random)))


@case("huge messages", 1, 1, "one raise; the message is a body of 20,000 characters")
def huge(random: Random) -> None:
    body = " ".join(random.choices((*WORDS, *NAMES, *CITIES), k=3_000))
    raise RuntimeError(f"unexpected answer: {body}")


@case("control characters", 1, 1, "one raise; line breaks, NUL and escapes vary")
def control(random: Random) -> None:
    noise = "".join(random.choices("\x00\x1b\r\n\t\x85\u2028\u202e", k=random.randrange(1, 5)))
    raise ValueError(f"{noise}the name {noise}{name(random)} cannot be printed")


@case("object in the message", 1, 1, "one raise; a repr with an address, and a path without quotes")
def in_message(random: Random) -> None:
    path = f"/var/data/{name(random)}/{key(random)}.csv"
    raise TypeError(f"<Order {uuid(random)} at 0x{number(random):x}> does not fit {path}")


@case("type with a random name", 1, 150, "one raise; the type is created for each failure")
def dynamic_type(random: Random) -> None:
    raise type(f"{key(random)}Error", (Exception,), {})(f"{name(random)} is not allowed")


# ---- Own code, several causes


@case("two raises in one function", 2, 2, "one for each raise statement")
def two_raises(random: Random) -> None:
    if cause(random, 2):
        raise ValueError(f"{name(random)} has no address")
    raise ValueError(f"the basket of {name(random)} is empty")


@case("two raises of a bare value", 2, 2, "one for each raise; the message is only the value")
def two_bare_raises(random: Random) -> None:
    if cause(random, 2):
        raise ValueError(name(random))
    raise ValueError(city(random))


@case("no message, two raises", 2, 2, "one for each raise; type and message are equal")
def no_message(random: Random) -> None:
    if cause(random, 2):
        raise ValueError
    raise ValueError()


def fail(text: str) -> None:
    raise RuntimeError(text)


def _fail_address(random: Random) -> None:
    fail(f"{name(random)} is not valid")


def _fail_card(random: Random) -> None:
    fail(f"{city(random)} is not valid")


def _fail_order(random: Random) -> None:
    fail(f"{number(random)} is not valid")


@case("fail() from three functions", 3, 3, "one for each caller: the callers found the fault")
def fail_helper(random: Random) -> None:
    (_fail_address, _fail_card, _fail_order)[cause(random, 3)](random)


def require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


@case("require() three times in one function", 3, 3, "one for each line that requires something")
def require_helper(random: Random) -> None:
    broken = cause(random, 3)
    require(broken != 0, f"{name(random)} is missing")
    require(broken != 1, f"{city(random)} is missing")
    require(broken != 2, f"{number(random)} is missing")


@case("assert with and without a message", 2, 2, "one for each assert")
def asserts(random: Random) -> None:
    broken = cause(random, 2)
    assert broken != 0
    assert broken != 1, f"{name(random)} of {city(random)} owes {number(random)}"


LAMBDAS = {
    "weight": lambda random: operator.index(name(random)),
    "height": lambda random: operator.index(city(random)),
}


@case("two lambdas", 2, 2, "one for each lambda; both are called <lambda>")
def lambdas(random: Random) -> None:
    LAMBDAS[("weight", "height")[cause(random, 2)]](random)


@case("comprehension and generator", 2, 2, "one for each expression; both take the same bad value")
def comprehensions(random: Random) -> None:
    values = [number(random), name(random)]
    if cause(random, 2):
        print(sum(value + 1 for value in values))
    print([value + 1 for value in values])


def _retried(function: Callable[[Random], None]) -> Callable[[Random], None]:
    @functools.wraps(function)
    def wrapper(random: Random) -> None:
        return function(random)

    return wrapper


def _translated(function: Callable[[Random], None]) -> Callable[[Random], None]:
    @functools.wraps(function)
    def wrapper(random: Random) -> None:
        try:
            return function(random)
        except Exception as error:
            raise RuntimeError("the step has failed") from error

    return wrapper


def _decorated(wrapper: Callable[..., Callable[[Random], None]]) -> list[Callable[[Random], None]]:
    @wrapper
    def pack(random: Random) -> None:
        raise ValueError(f"bad {name(random)}")

    @wrapper
    def ship(random: Random) -> None:
        raise ValueError(f"bad {city(random)}")

    @wrapper
    def bill(random: Random) -> None:
        raise ValueError(f"bad {number(random)}")

    return [pack, ship, bill]


PASSED_ON, TRANSLATED = _decorated(_retried), _decorated(_translated)


@case("one decorator, three functions", 3, 3, "one for each decorated function")
def decorator(random: Random) -> None:
    PASSED_ON[cause(random, 3)](random)


@case("decorator with an error of its own", 3, 3, "one for each function under the one raise")
def translating_decorator(random: Random) -> None:
    TRANSLATED[cause(random, 3)](random)


class ShopError(Exception):
    pass


class NotFound(ShopError):
    pass


class Refused(ShopError):
    pass


class Broken(ShopError):
    pass


def error_for(code: int, text: str) -> ShopError:
    return {404: NotFound, 402: Refused, 500: Broken}[code](text)


@case("factory of a class hierarchy", 3, 3, "one for each code, and so for each type; one raise")
def factory(random: Random) -> None:
    raise error_for((404, 402, 500)[cause(random, 3)], f"{name(random)} in {city(random)}")


class VendorError(Exception):
    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.error_code = code


@case("own error with error_code", 3, 1, "one for each code; Sentry does not read attributes")
def with_code(random: Random) -> None:
    code = ("insufficient_funds", "card_expired", "rate_limited")[cause(random, 3)]
    raise VendorError(f"payment of {name(random)} failed", code)


@case(
    "code inside JSON in the message", 2, 1, "one for each code; Sentry: the frame takes precedence"
)
def json_message(random: Random) -> None:
    code = ("insufficient_funds", "account_closed")[cause(random, 2)]
    said = {"error": code, "request_id": key(random, 20), "customer": name(random)}
    raise RuntimeError(f"the bank said {json.dumps(said)}")


@case("exit with a code", 3, 1, "one for each code; one line exits")
def exits(random: Random) -> None:
    sys.exit((1, 2, 70)[cause(random, 3)])


# ---- Chains


def _find(random: Random) -> None:
    if cause(random, 2):
        print({}[name(random)])
    int(city(random))


@case("raise from, two causes", 2, 2, "one for each error underneath; the outer message hides it")
def raise_from(random: Random) -> None:
    try:
        _find(random)
    except (KeyError, ValueError) as error:
        raise ShopError(f"cannot load order {number(random)}") from error


@case("raise from, the cause in the message", 2, 2, "one for each error underneath")
def raise_from_text(random: Random) -> None:
    try:
        _find(random)
    except (KeyError, ValueError) as error:
        raise ShopError(f"loading failed: {error}") from error


@case("raise from None", 2, 1, "one for each error underneath, but only the messages differ")
def raise_from_none(random: Random) -> None:
    try:
        _find(random)
    except (KeyError, ValueError) as error:
        raise ShopError(f"loading failed: {type(error).__name__}") from None


@case("error in an error handler", 1, 2, "one: the handler is broken, whatever it was to handle")
def in_handler(random: Random) -> None:
    try:
        _find(random)
    except (KeyError, ValueError):
        random.cause = 0
        print(None.rollback)


@case(
    "raised again", 2, 4, "one for each place where it was raised first; two lines raise it again"
)
def raised_again(random: Random) -> None:
    try:
        _find(random)
    except (KeyError, ValueError) as error:
        if random.random() < 0.5:
            raise
        raise error


@case(
    "group with one member", 2, 2, "one for each member's cause", when=sys.version_info >= (3, 11)
)
def group_of_one(random: Random) -> None:
    try:
        _find(random)
    except (KeyError, ValueError) as error:
        raise ExceptionGroup(f"the steps of {name(random)}", [error]) from None  # noqa: F821


def _members(random: Random, count: int) -> Iterator[Exception]:
    for _ in range(count):
        try:
            _fail_address(random)
        except RuntimeError as error:
            yield error


@case(
    "group with many members", 1, 1, "one: all members have it; their number varies",
    when=sys.version_info >= (3, 11),
)  # fmt: skip
def group_of_many(random: Random) -> None:
    raise ExceptionGroup("steps failed", list(_members(random, random.randrange(2, 9))))  # noqa: F821


# ---- Depth, generated code, other threads and loops


def _down(random: Random, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"{name(random)} is not a leaf")
    _down(random, depth - 1)


@case("raised at a random depth", 1, 2, "one raise below a function that calls itself; or does not")
def random_depth(random: Random) -> None:
    _down(random, random.randrange(30))


def _ping(depth: int) -> int:
    return _pong(depth + 1)


def _pong(depth: int) -> int:
    return _ping(depth + 1)


@case("endless recursion of two functions", 1, 2, "one; which of the two is the last is chance")
def recursion(random: Random) -> None:
    (_ping, _pong)[random.randrange(2)](0)


FORMULAS = ("price / quantity", "price[city]")


@case("eval of two formulas", 2, 2, "one for each formula; the frame's file is called <string>")
def formulas(random: Random) -> None:
    formula = FORMULAS[cause(random, 2)]
    print(eval(formula, {"price": number(random), "quantity": 0, "city": city(random)}))


@case("eval of one formula with other names", 1, 1, "one formula, whose names are the customer's")
def renamed_formulas(random: Random) -> None:
    variable = key(random).strip(string.digits) or "x"
    print(eval(f"{variable}_total + 1", {}))


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Address:
    city: str
    street: str


@case("generated __init__ and __new__", 2, 2, "one for each call with the wrong arguments")
def generated(random: Random) -> None:
    if cause(random, 2):
        print(Point(number(random)))
    print(Address(**{random.choice(WORDS): city(random)}))


async def _load(random: Random) -> None:
    await asyncio.sleep(0)
    raise ValueError(f"{name(random)} is not valid")


async def _store(random: Random) -> None:
    await asyncio.sleep(0)
    raise ValueError(f"{city(random)} is not valid")


@case("coroutines under asyncio.run", 2, 2, "one for each coroutine")
def coroutines(random: Random) -> None:
    asyncio.run((_load, _store)[cause(random, 2)](random))


async def _hurry(random: Random) -> None:
    if cause(random, 2):
        await asyncio.wait_for(asyncio.sleep(9), 0)
    await asyncio.wait_for(asyncio.Event().wait(), 0)


@case("asyncio timeouts without a message", 2, 2, "one for each call that took too long")
def async_timeouts(random: Random) -> None:
    asyncio.run(_hurry(random))


@case("futures of a thread pool", 2, 2, "one for each function; result() raises again")
def futures(random: Random) -> None:
    step = (_fail_address, _fail_card)[cause(random, 2)]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(step, random).result()


# ---- Python's own errors


@case("KeyError of a random key", 1, 1, "one lookup; keys are texts, numbers and pairs")
def random_key(random: Random) -> None:
    print({}[random.choice((name(random), number(random), (city(random), number(random))))])


@case("KeyError on two lines", 2, 2, "one for each lookup")
def two_keys(random: Random) -> None:
    prices: dict[str, int] = {}
    if cause(random, 2):
        print(prices[name(random)])
    print(prices[city(random)])


@case("attributes of None", 2, 2, "one for each line")
def attributes(random: Random) -> None:
    order = None
    if cause(random, 2):
        print(order.city)
    print(order.name)


@case("int() and float()", 2, 2, "one for each conversion; what is converted varies")
def conversions(random: Random) -> None:
    text = random.choice((name(random), "", "1,5", "12 €", f"{city(random)} 7", '"'))
    if cause(random, 2):
        int(text)
    float(text)


@case("dates that cannot be read", 2, 2, "one for each call; strptime has three messages")
def dates(random: Random) -> None:
    if cause(random, 2):
        datetime.datetime.fromisoformat(random.choice((name(random), "12.3.2026", city(random))))
    text = random.choice((city(random), f"2026-01-02 {name(random)}", "2026-02-30"))
    datetime.datetime.strptime(text, "%Y-%m-%d")  # noqa: DTZ007


@case("json.loads of broken texts", 1, 1, "one call; the message says where the text is broken")
def broken_json(random: Random) -> None:
    json.loads(random.choice(("", "{", "[1,]", '{"a" 1}', '"a', "1 2", name(random) + "}")))


class Currency(enum.Enum):
    EUR = "EUR"


@case("enum and codec", 2, 2, "one for each call; the refused value varies")
def enum_and_codec(random: Random) -> None:
    if cause(random, 2):
        Currency(random.choice(WORDS[:9]))
    bytes(random.choices(range(128, 256), k=4)).decode("ascii")


@case("pickle", 2, 2, "one for each kind of value, and so for each type; one call, in C")
def pickles(random: Random) -> None:
    value = threading.Lock() if cause(random, 2) else types.SimpleNamespace(f=lambda: name(random))
    pickle.dumps({key(random): value})


@case("files", 2, 2, "one for each errno, and so for each type; the path varies")
def files(random: Random) -> None:
    path = f"/nowhere/{name(random)}/{key(random)}.csv"
    code = (errno.ENOENT, errno.EACCES)[cause(random, 2)]
    raise OSError(code, errno.errorcode[code], path)


@case("names of hosts", 2, 1, "one for each code of the resolver")
def resolver(random: Random) -> None:
    said = ((-2, "Name or service not known"), (-3, "Temporary failure in name resolution"))
    raise socket.gaierror(*said[cause(random, 2)])


@case("TLS", 2, 1, "one for each reason; the host varies")
def tls(random: Random) -> None:
    host = f"{random.choice(WORDS)}.example.org"
    why = (f"Hostname mismatch, certificate is not valid for '{host}'", "certificate has expired")
    text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    raise ssl.SSLCertVerificationError(1, f"{text}: {why[cause(random, 2)]}. (_ssl.c:1006)")


@case("exit codes of a program", 3, 1, "one for each exit code; the arguments vary")
def programs(random: Random) -> None:
    code = (1, 2, -9)[cause(random, 3)]
    subprocess.CompletedProcess(["convert", name(random), key(random)], code).check_returncode()


@case("XML", 3, 1, "one for each code of the parser; one call, line and column vary")
def broken_xml(random: Random) -> None:
    text = ("", f"<a>{random.choice(WORDS)}</b>", f"<a>{random.choice(WORDS)} & b</a>")
    xml.etree.ElementTree.fromstring("\n" * random.randrange(9) + text[cause(random, 3)])


# ---- HTTP

STATUSES = ((404, "Not Found"), (500, "Internal Server Error"), (429, "Too Many Requests"))


@case("requests, three statuses", 3, 1, "one for each status; the URL has names", needs="requests")
def requests_status(random: Random) -> None:
    import requests

    response = requests.Response()
    response.status_code, response.reason = STATUSES[cause(random, 3)]
    response.url = url(random)
    response.raise_for_status()


@case(
    "requests, refused",
    1,
    10,
    "one closed port; Sentry: the path is in the inner messages",
    needs="requests",
)
def requests_refused(random: Random) -> None:
    import requests

    with requests.Session() as session:
        session.trust_env = False
        session.get(f"http://127.0.0.1:1/{random.choice(WORDS)}/{number(random)}")


@case("requests, timeouts", 2, 2, "one for each kind of timeout", needs="requests")
def requests_timeouts(random: Random) -> None:
    import requests

    pool = f"HTTPSConnectionPool(host='{random.choice(WORDS)}.example.com', port=443)"
    if cause(random, 2):
        error: Exception = requests.ReadTimeout(f"{pool}: Read timed out. (read timeout=3.05)")
    else:
        error = requests.ConnectTimeout(f"{pool}: Max retries exceeded with url: /{key(random)}")
    raise error


@case(
    "httpx, three statuses", 3, 1, "one for each status; the message has two lines", needs="httpx"
)
def httpx_status(random: Random) -> None:
    import httpx

    status, _reason = STATUSES[cause(random, 3)]
    httpx.Response(status, request=httpx.Request("GET", url(random))).raise_for_status()


@case("urllib3, three statuses", 3, 1, "one for each status, after the retries", needs="urllib3")
def urllib3_status(random: Random) -> None:
    import urllib3

    status, _reason = STATUSES[cause(random, 3)]
    why = urllib3.exceptions.ResponseError(f"too many {status} error responses")
    pool = urllib3.HTTPConnectionPool(f"{random.choice(WORDS)}.example.com")
    raise urllib3.exceptions.MaxRetryError(pool, f"/{key(random)}", why) from why


@case("aiohttp, three statuses", 3, 1, "one for each status, in a coroutine", needs="aiohttp")
def aiohttp_status(random: Random) -> None:
    import aiohttp
    import multidict
    import yarl

    place = yarl.URL(url(random))
    info = aiohttp.RequestInfo(
        place, "GET", multidict.CIMultiDictProxy(multidict.CIMultiDict()), place
    )
    status, reason = STATUSES[cause(random, 3)]

    async def get() -> None:
        raise aiohttp.ClientResponseError(info, (), status=status, message=reason)

    asyncio.run(get())


@case(
    "botocore, three codes", 3, 1, "one for each code; the key is in the message", needs="botocore"
)
def botocore_code(random: Random) -> None:
    from botocore.exceptions import ClientError

    code = ("NoSuchKey", "SlowDown", "AccessDenied")[cause(random, 3)]
    said = {"Code": code, "Message": f"{name(random)}/{key(random)} of {city(random)}"}
    raise ClientError({"Error": said}, "GetObject")


@case("gRPC, three codes", 3, 1, "one for each code, which is in the second line", needs="grpc")
def grpc_code(random: Random) -> None:
    import grpc
    from grpc._channel import _InactiveRpcError, _RPCState

    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL)
    state = _RPCState((), (), (), codes[cause(random, 3)], f"no {name(random)}")
    raise _InactiveRpcError(state)


# ---- Databases


@case("psycopg, three errors of one query", 3, 3, "one for each SQLSTATE", needs="psycopg")
def psycopg_errors(random: Random) -> None:
    from psycopg import errors

    said = (
        (errors.UniqueViolation, 'duplicate key value violates unique constraint "customer_email_key"\n'
         f"DETAIL:  Key (email)=({email(random)}) already exists."),
        (errors.DeadlockDetected, f"deadlock detected\nDETAIL:  Process {number(random)} waits"),
        (errors.UndefinedColumn, f'column "{random.choice(WORDS)}" does not exist\nLINE 1: SELECT'),
    )  # fmt: skip
    kind, text = said[cause(random, 3)]
    raise kind(text)


@case(
    "psycopg, the server's language",
    1,
    1,
    "one: the same constraint in two languages",
    needs="psycopg",
)
def psycopg_languages(random: Random) -> None:
    from psycopg.errors import UniqueViolation

    text = random.choice((
        'duplicate key value violates unique constraint "customer_email_key"\n'
        "DETAIL:  Key (email)=({}) already exists.",
        "doppelter Schlüsselwert verletzt Unique-Constraint »customer_email_key«\n"
        "DETAIL:  Schlüssel »(email)=({})« existiert bereits.",
    ))  # fmt: skip
    raise UniqueViolation(text.format(email(random)))


STATEMENTS = (
    ("INSERT INTO customer VALUES (?, ?)", lambda random: ("taken", city(random))),
    ("SELECT street FROM customer WHERE email = ?", lambda random: (email(random),)),
    ("UPDATE customers SET city = ?", lambda random: (city(random),)),
)
SCHEMA = "CREATE TABLE customer (email TEXT PRIMARY KEY, city TEXT)"


@case("sqlite3, three statements", 3, 2, "one for each statement; one line executes all, two types")
def sqlite_errors(random: Random) -> None:
    statement, values = STATEMENTS[cause(random, 3)]
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(SCHEMA)
        connection.execute("INSERT INTO customer VALUES ('taken', 'x')")
        connection.execute(statement, values(random))
    finally:
        connection.close()


@case(
    "pymysql, three codes",
    3,
    2,
    "one for each code; raised inside the library, two types",
    needs="pymysql",
)
def pymysql_errors(random: Random) -> None:
    from pymysql.err import raise_mysql_exception

    code, text = (
        (1062, f"Duplicate entry '{name(random)}' for key 'customer.email'"),
        (1213, "Deadlock found when trying to get lock; try restarting transaction"),
        (1054, f"Unknown column '{random.choice(WORDS)}' in 'field list'"),
    )[cause(random, 3)]
    raise_mysql_exception(b"\xff" + code.to_bytes(2, "little") + b"#HY000" + text.encode())


@functools.cache
def _engine():
    import sqlalchemy

    return sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.NullPool)


@case(
    "SQLAlchemy, three statements",
    3,
    3,
    "one for each statement; SQL and values are in the message",
)
def sqlalchemy_errors(random: Random) -> None:
    statement, values = STATEMENTS[cause(random, 3)]
    with _engine().connect() as connection:
        connection.exec_driver_sql(SCHEMA)
        connection.exec_driver_sql("INSERT INTO customer VALUES ('taken', 'x')")
        connection.exec_driver_sql(statement, values(random))


@case(
    "Django, three statements",
    3,
    2,
    "one for each error under Django's own, two types",
    needs="django",
)
def django_errors(random: Random) -> None:
    from django.db.utils import DatabaseErrorWrapper

    alias = types.SimpleNamespace(Database=sqlite3, errors_occurred=False)
    with DatabaseErrorWrapper(alias):
        sqlite_errors(random)


# ---- Libraries


@functools.cache
def _models():
    import pydantic

    class Line(pydantic.BaseModel):
        sku: str

    class Order(pydantic.BaseModel):
        number: int
        city: str
        lines: list[Line]

    return Order


@case(
    "Pydantic, three fields",
    3,
    1,
    "one for each field; which it is stands in the second line",
    needs="pydantic",
)
def pydantic_fields(random: Random) -> None:
    order = {"number": 1, "city": city(random), "lines": [{"sku": "a"}] * random.randrange(1, 9)}
    bad = ({"number": name(random)}, {"city": number(random)}, {"lines": [*order["lines"], {}]})
    _models().model_validate({**order, **bad[cause(random, 3)]})


VENDOR = '''
class VendorError(Exception):
    """All that this library ever raises."""

def call(answer):
    return _check(answer)

def _check(answer):
    raise VendorError(answer)

def connect(host):
    raise VendorError(f"no connection to {host}")

def login(user):
    raise VendorError(f"{user} has no access")

def task(random):
    names = ("Ada", "Zoe", "Ivan")
    random.cause = random.randrange(2)
    (connect, login)[random.cause](random.choice(names))
'''


def _installed(name: str, source: str) -> types.ModuleType:
    """A module that claims to be installed in this Python's site-packages."""
    module = types.ModuleType(name)
    path = f"{sysconfig.get_path('purelib')}/{name}/client.py"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    exec(compile(source, path, "exec"), module.__dict__)
    return module


vendor = _installed("vendor", VENDOR)


@case("library, one raise for all", 3, 1, "one for each answer; the only own frame is the task's")
def vendor_answers(random: Random) -> None:
    said = (f"no such customer: {name(random)}", f"the quota of {city(random)} is used up", "busy")
    vendor.call(said[cause(random, 3)])


@case("library, two raises", 2, 1, "one for each raise in the library; one own line calls both")
def vendor_raises(random: Random) -> None:
    (vendor.connect, vendor.login)[cause(random, 2)](name(random))


case("task of an installed package", 2, 2, "one for each raise; no frame is the user's own")(
    vendor.task
)
