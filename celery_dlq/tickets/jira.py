"""Issues on Jira Cloud and Jira Data Center: https://developer.atlassian.com/cloud/jira/platform/rest/v3/ and
https://developer.atlassian.com/server/jira/platform/rest/."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from celery_dlq.model.handling import HandlerLetter
from celery_dlq.settings.validation import TEXT, Allowed
from celery_dlq.tickets.handler import TicketHandler, field_of, issues_in
from celery_dlq.tickets.service import LABELS, SITE, TOKEN, Service, matching
from celery_dlq.tickets.text import TicketText


@dataclass(frozen=True)
class JiraIssues(TicketHandler):
    """Opens issues in a project of Jira: of Jira Cloud if ``email`` is given, otherwise of Jira Data Center.

    :param project: its key, such as ``SHOP``.
    :param url: the address of the site, such as ``https://acme.atlassian.net``.
    :param token: Cloud: an API token without scopes, of the account ``email``. Data Center: a personal access
        token.
    :param email: the address of the token's account on Jira Cloud.
    :param issue_type: the name of the issues' type.
    :param labels: labels for each issue.
    :param assignee: to whom each issue is assigned. Cloud: the id of an account. Data Center: the name of a
        user.
    :raises SettingsError: a value is not allowed, or they contradict each other.
    """

    allowed: ClassVar[Mapping[str, Allowed]] = {
        **TicketHandler.allowed,
        "project": matching(r"[A-Za-z]\w*", "the key of a project, such as 'SHOP'"),
        "url": SITE,
        "token": TOKEN,
        "email": matching(r"([!-9;-~]+@[!-9;-~]+)?", "an email address, or an empty string"),
        "issue_type": TEXT,
        "labels": Allowed(
            f"{LABELS.words}, without blanks",
            lambda value: LABELS.accepts(value) and not any(label.split() != [label] for label in value),
        ),
        "assignee": matching(r"[!-~]*", "the id or name of a user, or an empty string"),
    }  # fmt: skip

    project: str
    _: KW_ONLY
    url: str
    token: str = field(repr=False)
    email: str = ""
    issue_type: str = "Bug"
    labels: Sequence[str] = ()
    assignee: str = ""

    def contradictions(self) -> Iterator[str]:
        """An address that does not fit the kind of login."""
        host = urlsplit(self.url).hostname if SITE.accepts(self.url) else None
        if host == "api.atlassian.com":
            yield "url is not the address of a site, such as https://acme.atlassian.net"
        if host and host.endswith(".atlassian.net") and not self.email:
            yield "Jira Cloud needs email, the address of the token's account"

    def service(self) -> Service:
        """The API of the site."""
        pair = base64.b64encode(f"{self.email}:{self.token}".encode()).decode()
        login = f"Basic {pair}" if self.email else f"Bearer {self.token}"
        return Service(
            name="Jira", base=self._site, headers={"Authorization": login, "Accept": "application/json"},
            secrets=(self.token, pair), meanings=self._meanings(), timeout_s=self.timeout,
        )  # fmt: skip

    def find(self, service: Service, mark: str) -> str | None:
        """The oldest issue with the label that is not done.

        Jira Cloud's search knows an issue seconds after it was created, in rare cases minutes
        (https://developer.atlassian.com/cloud/jira/platform/search-and-reconcile/). It can be asked for up to
        50 issues at once without that delay, but only by their ids, which a killed worker has not stored. A
        handler whose worker was killed is called again after more than a minute.
        """
        jql = (
            f'project = "{self.project}" AND labels = "{mark}" AND statusCategory != Done '
            "ORDER BY created ASC"
        )
        told = {"jql": jql, "fields": ["labels"], "maxResults": 1}
        answer = service.post(
            "/rest/api/3/search/jql" if self.email else "/rest/api/2/search", told
        )
        listed = answer.get("issues") if isinstance(answer, dict) else None
        for issue in issues_in(service, listed):
            return self._address(service, issue)
        return None

    def open(self, service: Service, mark: str, text: TicketText, letter: HandlerLetter) -> str:
        """Create an issue."""
        values: dict[str, Any] = {
            "project": {"key": self.project}, "issuetype": {"name": self.issue_type},
            "summary": text.title, "labels": [mark, *self.labels],
            "description": text.document() if self.email else text.wiki(),
        }  # fmt: skip
        if self.assignee:
            values["assignee"] = {"accountId" if self.email else "name": self.assignee}
        made = service.post(f"/rest/api/{3 if self.email else 2}/issue", {"fields": values})
        return self._address(service, made)

    @property
    def _site(self) -> str:
        return self.url.rstrip("/")

    def _address(self, service: Service, issue: object) -> str:
        return f"{self._site}/browse/{field_of(service, issue, 'key')}"

    def _meanings(self) -> Mapping[int, str]:
        token = "API token of email" if self.email else "personal access token"
        return {
            400: (
                f"It does not accept the request. Check project, issue_type and assignee, and that issues of "
                f"{self.project} need no other fields."
            ),
            401: f"It does not accept the token. Make a new {token}, and give it as token.",
            403: f"The account may not do this in {self.project}. Allow it to browse and create issues.",
            404: "It has no such address. Check url, and give email for Jira Cloud only.",
            410: "It has this API no longer. Give email if the site is on Jira Cloud.",
            422: "It does not accept the issue. Check issue_type, labels and assignee.",
        }
