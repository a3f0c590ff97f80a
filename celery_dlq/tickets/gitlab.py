"""Issues on GitLab: https://docs.gitlab.com/api/issues/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar
from urllib.parse import quote

from celery_dlq.model.handling import HandlerLetter
from celery_dlq.settings.validation import Allowed
from celery_dlq.tickets.handler import TicketHandler, field_of, issues_in, warn_of_lost_label
from celery_dlq.tickets.service import LABELS, SITE, TOKEN, Service, matching
from celery_dlq.tickets.text import TicketText

_PROJECT = matching(r"[\w.-]+(/[\w.-]+)+|[0-9]+", "")


@dataclass(frozen=True)
class GitLabIssues(TicketHandler):
    """Opens issues in a project on GitLab.

    :param project: its path, such as ``acme/shop``, or its number.
    :param token: a personal, group or project access token with the scope ``api``, and at least the role
        Reporter.
    :param url: the address of a GitLab of your own.
    :param labels: labels for each issue; GitLab creates those that it does not have.
    :param assignee_ids: the numbers of the users to whom each issue is assigned. GitLab Free takes one.
    :raises SettingsError: a value is not allowed.
    """

    allowed: ClassVar[Mapping[str, Allowed]] = {
        **TicketHandler.allowed,
        "project": Allowed(
            "a project as group/name, such as 'acme/shop', or its number",
            lambda value: _PROJECT.accepts(value) or _is_number(value),
        ),
        "token": TOKEN,
        "url": SITE,
        "labels": Allowed(
            f"{LABELS.words}, without commas",
            lambda value: LABELS.accepts(value) and not any("," in label for label in value),
        ),
        "assignee_ids": Allowed(
            "a list of numbers of users, such as (17,)",
            lambda value: isinstance(value, (list, tuple)) and all(map(_is_number, value)),
        ),
    }

    project: str | int
    _: KW_ONLY
    token: str = field(repr=False)
    url: str = "https://gitlab.com"
    labels: Sequence[str] = ()
    assignee_ids: Sequence[int] = ()

    def service(self) -> Service:
        """The API of the project."""
        project = quote(str(self.project), safe="")
        return Service(
            name="GitLab", base=f"{self.url.rstrip('/')}/api/v4/projects/{project}",
            headers={"PRIVATE-TOKEN": self.token}, secrets=(self.token,),
            meanings=_meanings(self.project), timeout_s=self.timeout,
        )  # fmt: skip

    def find(self, service: Service, mark: str) -> str | None:
        """The open issue with the label; the list knows it as soon as it exists."""
        query = {"labels": mark, "state": "opened", "per_page": "1"}
        for issue in issues_in(service, service.get("/issues", query)):
            if mark in (issue.get("labels") or ()):
                return field_of(service, issue, "web_url")
        return None

    def open(self, service: Service, mark: str, text: TicketText, letter: HandlerLetter) -> str:
        """Create an issue."""
        told = {
            "title": text.title, "description": text.markdown(),
            "labels": ",".join([mark, *self.labels]), "assignee_ids": list(self.assignee_ids),
        }  # fmt: skip
        made = service.post("/issues", told)
        url = field_of(service, made, "web_url")
        warn_of_lost_label(service, mark, made.get("labels") or (), url)
        return url


def _is_number(value: object) -> bool:
    return type(value) is int and value > 0


def _meanings(project: str | int) -> Mapping[int, str]:
    return {
        400: "It does not accept the issue. Check labels and assignee_ids.",
        401: "It does not accept the token. Make a new one, and give it as token.",
        403: f"The token may not do this in {project}. It needs the scope api and the role Reporter.",
        404: f"It has no project {project}, or the token may not see it. Check both.",
        422: "It does not accept the issue. Check labels and assignee_ids.",
    }
