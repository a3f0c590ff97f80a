"""PyGithub: github/GithubException.py."""

from celery_dlq.classify.builtin.http import http_status, in_turn, otherwise
from celery_dlq.classify.table import probed, terminal, transient, within
from celery_dlq.model.states import Verdict

ROWS = (
    # github/Requester.py reads the text of a 403 to make this one.
    transient("github.rate", "github.GithubException.RateLimitExceededException"),
    probed(
        "http.status",
        in_turn(http_status(("status",)), otherwise(Verdict.TERMINAL, "github.answer")),
        "status, 403 by its headers",
        "github.GithubException.GithubException",
    ),
    terminal(
        "github.request",
        *within(
            "github.GithubException",
            "BadCredentialsException UnknownObjectException BadUserAgentException "
            "TwoFactorException IncompletableObject BadAttributeException",
        ),
    ),
)
