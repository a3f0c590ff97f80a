"""passivetotal: a stub of the API of RiskIQ PassiveTotal."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "passivetotal==2.5.9"


def whois(base, timeout=None):
    from passivetotal import analyzer

    analyzer.init(username="user", api_key="key")
    with stub.requests_to(base, timeout):
        analyzer.Hostname("example.com").whois


def plain(base):
    from passivetotal import WhoisRequest

    with stub.requests_to(base):
        WhoisRequest("user", "key").get_whois_details(query="example.com")


def resolve():
    from passivetotal import analyzer

    with stub.unknown_host():
        analyzer.Hostname("does-not-exist.example").ip


def view():
    from passivetotal import analyzer

    analyzer.get_object("example.com", "Nothing")


def cases():
    yield (
        "rate limit (429)",
        lambda: whois(stub.answer(429, '{"message": "Rate limit exceeded"}')),
        "transient",
        "firm",
        "passivetotal/analyzer/_common.py AnalyzerAPIError(response) with status_code",
    )
    yield (
        "service unavailable (503)",
        lambda: whois(stub.answer(503, "<html>503 Service Unavailable</html>")),
        "transient",
        "firm",
        "passivetotal/analyzer/_common.py AnalyzerAPIError(response) with status_code",
    )
    yield (
        "503 at the plain client",
        lambda: plain(stub.answer(503, "<html>503 Service Unavailable</html>")),
        "transient",
        "firm",
        "passivetotal/api.py: raises exception_class(response), by default Exception(<Response [503]>)",
    )
    yield (
        "no answer in time",
        lambda: whois(stub.silent(), 0.3),
        "transient",
        "firm",
        "passivetotal/api.py TIMEOUT = 30: requests' ReadTimeout",
    )
    yield (
        "quota of the account is used up",
        lambda: whois(stub.answer(429, '{"error": "API quota has been exceeded for the month"}')),
        "terminal",
        "soft",
        "AnalyzerAPIError; a 429, but the quota is of a month",
    )
    yield (
        "wrong key (401)",
        lambda: whois(stub.answer(401, '{"error": "invalid credentials"}')),
        "terminal",
        "firm",
        "passivetotal/analyzer/_common.py AnalyzerAPIError(response) with status_code",
    )
    yield (
        "type of the object is unknown",
        view,
        "terminal",
        "firm",
        "passivetotal/analyzer/__init__.py:99 AnalyzerError",
    )
    yield (
        "host name does not resolve",
        resolve,
        "terminal",
        "firm",
        "passivetotal/analyzer/hostname.py:111 AnalyzerError from socket.gaierror (EAI_NONAME)",
    )
