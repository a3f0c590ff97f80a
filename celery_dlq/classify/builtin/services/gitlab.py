"""python-gitlab: gitlab/exceptions.py. GitlabError carries the status; it is also a wrapper."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import network, probed, terminal, within

ROWS = (
    probed(
        "http.status",
        http_status(("response_code",)),
        "response_code, else its cause",
        "gitlab.exceptions.GitlabError",
    ),
    network("gitlab.network", "gitlab.exceptions.GitlabConnectionError"),
    terminal(
        "gitlab.request",
        *within("gitlab.exceptions", "GitlabParsingError RedirectError GitlabAuthenticationError"),
        "gitlab.config.ConfigError",
    ),
)
