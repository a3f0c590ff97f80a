"""Issues on GitHub and GitHub Enterprise: https://docs.github.com/en/rest/issues/issues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from celery_dlq.model.handling import HandlerLetter
from celery_dlq.settings.validation import Allowed
from celery_dlq.tickets.handler import TicketHandler, field_of, issues_in, warn_of_lost_label
from celery_dlq.tickets.service import LABELS, LOGINS, SITE, TOKEN, Service, matching
from celery_dlq.tickets.text import TicketText

#: Pull requests are in GitHub's lists of issues, too. More than these do not have the label of one group.
_PAGE = "50"


@dataclass(frozen=True)
class GitHubIssues(TicketHandler):
    """Opens issues in a repository on GitHub.

    :param repo: owner and name, such as ``acme/shop``.
    :param token: may read and write the issues of the repository. A fine-grained one has the permission
        "Issues: read and write".
    :param url: the address of the API; that of GitHub Enterprise is ``https://HOST/api/v3``.
    :param labels: labels for each issue; GitHub creates those that it does not have.
    :param assignees: the login names of those to whom each issue is assigned.
    :raises SettingsError: a value is not allowed.
    """

    allowed: ClassVar[Mapping[str, Allowed]] = {
        **TicketHandler.allowed,
        "repo": matching(r"[\w.-]+/[\w.-]+", "a repository as owner/name, such as 'acme/shop'"),
        "token": TOKEN, "url": SITE, "labels": LABELS, "assignees": LOGINS,
    }  # fmt: skip

    repo: str
    _: KW_ONLY
    token: str = field(repr=False)
    url: str = "https://api.github.com"
    labels: Sequence[str] = ()
    assignees: Sequence[str] = ()

    def service(self) -> Service:
        """The API of the repository."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        return Service(
            name="GitHub", base=f"{self.url.rstrip('/')}/repos/{self.repo}", headers=headers,
            secrets=(self.token,), meanings=_meanings(self.repo), timeout_s=self.timeout,
        )  # fmt: skip

    def find(self, service: Service, mark: str) -> str | None:
        """The open issue with the label; the list knows it as soon as it exists."""
        query = {"labels": mark, "state": "open", "per_page": _PAGE}
        for issue in issues_in(service, service.get("/issues", query)):
            if "pull_request" not in issue and mark in _labels(issue):
                return field_of(service, issue, "html_url")
        return None

    def open(self, service: Service, mark: str, text: TicketText, letter: HandlerLetter) -> str:
        """Create an issue."""
        told = {
            "title": text.title, "body": text.markdown(), "labels": [mark, *self.labels],
            "assignees": list(self.assignees),
        }  # fmt: skip
        made = service.post("/issues", told)
        url = field_of(service, made, "html_url")
        warn_of_lost_label(service, mark, _labels(made), url)
        return url


def _labels(issue: Mapping[str, Any]) -> list[object]:
    listed = issue.get("labels")
    found = listed if isinstance(listed, list) else []
    return [one.get("name") if isinstance(one, dict) else one for one in found]


def _meanings(repo: str) -> Mapping[int, str]:
    return {
        401: "It does not accept the token. Make a new one, and give it as token.",
        403: f"The token may not do this in {repo}. Allow it to read and write issues.",
        404: f"It has no repository {repo}, or the token may not see it. Check both.",
        410: f"{repo} has no issues. Switch them on in its settings, or give another repo.",
        422: "It does not accept the issue. Check labels and assignees.",
    }
