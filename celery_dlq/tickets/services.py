"""The table of the systems: what users say about each, how its open ticket is found, and how a ticket is
opened. The sources are the descriptions of their APIs:

- https://docs.github.com/en/rest/issues/issues
- https://docs.gitlab.com/api/issues/
- https://developer.atlassian.com/cloud/jira/platform/rest/v2/ and, for Data Center,
  https://developer.atlassian.com/server/jira/platform/rest/
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import quote, urlencode

from celery_dlq.settings.validation import TEXT
from celery_dlq.tickets.engine import Row, TicketHandler, allowed, one, several
from celery_dlq.tickets.text import TicketText

#: A token may travel without encryption only within this host.
_URL = r"(https://([\w.-]+|\[[\da-f:.]+\])|http://(localhost|127\.0\.0\.1|\[::1\]))(:\d{1,5})?(/[!-\"$->@-~]*)?"
_LABELS, _NUMBER = "a list of names, such as ('celery',)", r"[1-9]\d*"
_PROJECT = "a project as group/name, such as 'acme/shop', or its number"
_API = one(
    _URL,
    "an address that begins with https:// (http:// only for localhost) and names a host, "
    "without a user, a fragment or a query",
)
# It becomes a header. An error about a header with a line break would show the token.
_TOKEN = one(r"[!-~]+", "a text of printable ASCII characters without blanks; is its variable set?")


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

    system, address = "GitHub", "html_url"

    repo: str = field(
        metadata=one(r"[\w.-]+/[\w.-]+", "a repository as owner/name, such as 'acme/shop'")
    )
    _: KW_ONLY
    token: str = field(repr=False, metadata=_TOKEN)
    url: str = field(default="https://api.github.com", metadata=_API)
    labels: Sequence[str] = field(default=(), metadata=several(r".+", _LABELS))
    assignees: Sequence[str] = field(
        default=(), metadata=several(r".+", "a list of login names, such as ('ann',)")
    )

    def _row(self, mark: str, text: TicketText) -> Row:
        """Pull requests are in the list, too; no more than 50 have the label of one group."""
        issues = f"{self.url.rstrip('/')}/repos/{self.repo}/issues"
        ticket = {
            "title": text.title, "body": text.markdown(), "labels": [mark, *self.labels],
            "assignees": list(self.assignees),
        }  # fmt: skip
        headers = {
            "Authorization": f"Bearer {self.token}", "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }  # fmt: skip
        search = f"{issues}?labels={mark}&state=open&per_page=50"
        return Row(search, issues, json.dumps(ticket).encode(), headers)


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

    system, address = "GitLab", "web_url"

    project: str | int = field(metadata=one(rf"[\w.-]+(/[\w.-]+)+|{_NUMBER}", _PROJECT, (str, int)))
    _: KW_ONLY
    token: str = field(repr=False, metadata=_TOKEN)
    url: str = field(default="https://gitlab.com", metadata=_API)
    labels: Sequence[str] = field(
        default=(), metadata=several(r"[^,]+", f"{_LABELS}, without commas")
    )
    assignee_ids: Sequence[int] = field(
        default=(), metadata=several(_NUMBER, "a list of numbers of users, such as (17,)", (int,))
    )

    def _row(self, mark: str, text: TicketText) -> Row:
        """The list knows an issue as soon as it exists."""
        project = quote(str(self.project), safe="")
        issues = f"{self.url.rstrip('/')}/api/v4/projects/{project}/issues"
        ticket = {
            "title": text.title, "description": text.markdown(),
            "labels": ",".join([mark, *self.labels]), "assignee_ids": list(self.assignee_ids),
        }  # fmt: skip
        search = f"{issues}?labels={mark}&state=opened&per_page=1"
        return Row(search, issues, json.dumps(ticket).encode(), {"PRIVATE-TOKEN": self.token})


@dataclass(frozen=True)
class JiraIssues(TicketHandler):
    """Opens issues in a project of Jira: of Jira Cloud if ``email`` is given, otherwise of Jira Data Center.

    Jira Cloud's search knows an issue seconds after it was created, in rare cases minutes
    (https://developer.atlassian.com/cloud/jira/platform/search-and-reconcile/). A handler whose worker was
    killed is called again after more than a minute.

    :param project: its key, such as ``SHOP``.
    :param url: the address of the site, such as ``https://acme.atlassian.net``.
    :param token: Cloud: an API token without scopes, of the account ``email``. Data Center: a personal access
        token.
    :param email: the address of the token's account on Jira Cloud.
    :param issue_type: the name of the issues' type.
    :param labels: labels for each issue.
    :param assignee: to whom each issue is assigned. Cloud: the id of an account. Data Center: the name of a
        user.
    :raises SettingsError: a value is not allowed.
    """

    system, address = "Jira", "key"

    project: str = field(metadata=one(r"[A-Za-z]\w*", "the key of a project, such as 'SHOP'"))
    _: KW_ONLY
    url: str = field(metadata=_API)
    token: str = field(repr=False, metadata=_TOKEN)
    email: str = field(
        default="", metadata=one(r"([!-9;-~]+@[!-9;-~]+)?", "an email address, or an empty string")
    )
    issue_type: str = field(default="Bug", metadata=allowed(TEXT))
    labels: Sequence[str] = field(
        default=(), metadata=several(r"\S+", f"{_LABELS}, without blanks")
    )
    assignee: str = field(
        default="", metadata=one(r"[!-~]*", "the id or name of a user, or an empty string")
    )

    def _row(self, mark: str, text: TicketText) -> Row:
        """Version 2 of the API is on both, except that Cloud has another search."""
        site, is_cloud = self.url.rstrip("/"), bool(self.email)
        pair = base64.b64encode(f"{self.email}:{self.token}".encode()).decode()
        login = f"Basic {pair}" if is_cloud else f"Bearer {self.token}"
        has_mark = f'project = "{self.project}" AND labels = "{mark}"'
        jql = f"{has_mark} AND statusCategory != Done ORDER BY created ASC"
        query = urlencode({"jql": jql, "maxResults": 1, "fields": "created"})
        values = {
            "project": {"key": self.project}, "issuetype": {"name": self.issue_type},
            "summary": text.title, "labels": [mark, *self.labels], "description": text.wiki(),
        }  # fmt: skip
        if self.assignee:
            values["assignee"] = {"accountId" if is_cloud else "name": self.assignee}
        return Row(
            f"{site}/rest/api/2/search{'/jql' if is_cloud else ''}?{query}", f"{site}/rest/api/2/issue",
            json.dumps({"fields": values}).encode(),
            {"Authorization": login, "Accept": "application/json"}, f"{site}/browse/",
        )  # fmt: skip
