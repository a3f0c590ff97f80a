"""The cause of a failed connection that a library reports by its own number or text."""

from __future__ import annotations

from celery_dlq.classify.builtin.stdlib import name_lookup
from celery_dlq.classify.chain import ROOT_CAUSE_LIMIT, Budget, Link, reachable, walk
from celery_dlq.classify.evidence import bases, dotted_name, message, text_of
from celery_dlq.classify.table import Finding
from celery_dlq.model.states import Verdict

# The texts of OpenSSL and getaddrinfo(3), on Linux and macOS. Libraries that collect the failures of
# several hosts keep only these.
_CERTIFICATE = ("certificate verify failed", "CERTIFICATE_VERIFY_FAILED")
_PROTOCOL = ("[SSL: WRONG_VERSION_NUMBER]", "[SSL: UNSUPPORTED_PROTOCOL]", "[SSL: TLSV1_ALERT")
_UNKNOWN_HOST = (
    "Name or service not known",
    "No address associated with hostname",
    "nodename nor servname provided",
)


def unless_lasting(exc: BaseException, rule: str, evidence: str) -> Finding:
    """Transient by ``rule``, unless a certificate or an unknown host is behind ``exc``."""
    return lasting_cause(exc) or Finding(Verdict.TRANSIENT, rule, evidence)


def lasting_cause(exc: BaseException) -> Finding | None:
    """The certificate, TLS error or unknown host that the next attempt will meet again."""
    for link in walk(Link(exc), reachable, Budget(ROOT_CAUSE_LIMIT)):
        finding = _lasting(link.exc)
        if finding is not None:
            return finding
    return None


def refusal(exc: BaseException, rule: str, names: frozenset[str]) -> Finding | None:
    """An exception behind ``exc`` whose type is one of those ``names``: the login is refused."""
    for link in walk(Link(exc), reachable, Budget(ROOT_CAUSE_LIMIT)):
        found = names.intersection(dotted_name(base) for base in bases(type(link.exc)))
        if found:
            return Finding(Verdict.TERMINAL, rule, f"type={min(found)}")
    return None


def lasting_text(value: object) -> Finding | None:
    """The certificate, TLS error or unknown host that the only message of a library mentions."""
    text = text_of(value) or ""
    for words, rule in (
        (_CERTIFICATE, "tls.certificate"),
        (_PROTOCOL, "tls.protocol"),
        (_UNKNOWN_HOST, "dns.lookup"),
    ):
        found = next((word for word in words if word in text), None)
        if found is not None:
            return Finding(Verdict.TERMINAL, rule, f"message has {found!r}")
    return None


def lasting_copy(exc: BaseException) -> Finding | None:
    """The lasting cause in the message of an exception that repeats it, if pickling left nothing else."""
    return None if reachable(exc) else lasting_text(message(exc))


def _lasting(exc: BaseException) -> Finding | None:
    names = [dotted_name(base) for base in bases(type(exc))]
    if "ssl.SSLCertVerificationError" in names:
        return Finding(Verdict.TERMINAL, "tls.certificate", "type=ssl.SSLCertVerificationError")
    if "ssl.SSLError" in names and not {"ssl.SSLEOFError", "ssl.SSLZeroReturnError"} & {*names}:
        return Finding(Verdict.TERMINAL, "tls.protocol", f"type={names[0]}")
    if "socket.gaierror" in names:
        finding = name_lookup(exc)
        return finding if finding and finding.verdict is Verdict.TERMINAL else None
    return None
