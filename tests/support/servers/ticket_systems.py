"""GitHub, GitLab, Jira Cloud and Jira Data Center, as far as ticket handlers use them: one HTTP
server that keeps the tickets."""

from __future__ import annotations

import base64
import http.server
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN, EMAIL = "t0ken-of-the-tests-Zq7", "bot@acme.example"
_BASIC = "Basic " + base64.b64encode(f"{EMAIL}:{TOKEN}".encode()).decode()
_LABEL = re.compile(r'labels = "([^"]+)"')


@dataclass
class Request:
    """One request, as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass
class Issue:
    """One ticket."""

    number: int
    labels: list[str]
    told: Any
    is_open: bool = True
    is_pull_request: bool = False


@dataclass
class Systems:
    """What the server has and does."""

    url: str
    issues: list[Issue] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    #: Answers to the next requests, before any of its own: status, headers, body.
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    #: Whether the server, as GitHub and GitLab may, ignores the labels of new issues.
    drops_labels: bool = False

    @property
    def created(self) -> list[Request]:
        """The requests that were to make a ticket."""
        return [one for one in self.requests if one.method == "POST" and "search" not in one.path]

    def add(self, labels: list[str], told: Any = None, **changes: Any) -> Issue:
        issue = Issue(len(self.issues) + 1, labels, told, **changes)
        self.issues.append(issue)
        return issue

    def with_label(self, label: str) -> list[Issue]:
        return [one for one in self.issues if one.is_open and label in one.labels]

    def answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(request)
        if self.answers:
            return self.answers.pop(0)
        status, value = self._value(request)
        return status, {"Content-Type": "application/json"}, json.dumps(value).encode()

    def _value(self, request: Request) -> tuple[int, Any]:
        for pattern, serve in (
            ("/repos/acme/shop/issues", self._github),
            ("/api/v3/repos/acme/shop/issues", self._github),
            ("/api/v4/projects/acme/shop/issues", self._gitlab),
            ("/api/v4/projects/17/issues", self._gitlab),
            ("/rest/api/2/search/jql", self._jira_search),
            ("/rest/api/2/search", self._jira_search),
            ("/rest/api/2/issue", self._jira_issue),
        ):
            if unquote(request.path) == pattern:
                return serve(request)
        return 404, {"message": "Not Found"}

    def _github(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Bad credentials"}
        if request.method == "GET":
            assert request.query["state"] == "open"
            return 200, [
                self._github_issue(one) for one in self.with_label(request.query["labels"])
            ]
        labels = [] if self.drops_labels else request.told["labels"]
        return 201, self._github_issue(self.add(labels, request.told))

    def _github_issue(self, issue: Issue) -> dict[str, Any]:
        more = {"pull_request": {}} if issue.is_pull_request else {}
        labels = [{"id": 1, "name": label} for label in issue.labels]
        return {
            "html_url": f"https://github.test/acme/shop/issues/{issue.number}",
            "labels": labels,
            **more,
        }

    def _gitlab(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("Private-Token") != TOKEN:
            return 401, {"message": "401 Unauthorized"}
        if request.method == "GET":
            assert request.query["state"] == "opened"
            return 200, [
                self._gitlab_issue(one) for one in self.with_label(request.query["labels"])
            ]
        labels = [] if self.drops_labels else request.told["labels"].split(",")
        return 201, self._gitlab_issue(self.add(labels, request.told))

    def _gitlab_issue(self, issue: Issue) -> dict[str, Any]:
        return {"web_url": f"https://gitlab.test/-/issues/{issue.number}", "labels": issue.labels}

    def _jira_search(self, request: Request) -> tuple[int, Any]:
        if not self._is_jira_user(request):
            return 401, {"errorMessages": ["You are not authenticated"]}
        jql = request.query["jql"]
        assert 'project = "SHOP"' in jql
        assert "statusCategory != Done" in jql
        found = self.with_label(_LABEL.search(jql)[1])
        return 200, {"issues": [{"id": "1", "key": f"SHOP-{one.number}"} for one in found]}

    def _jira_issue(self, request: Request) -> tuple[int, Any]:
        if not self._is_jira_user(request):
            return 401, {"errorMessages": ["You are not authenticated"]}
        told = request.told["fields"]
        made = self.add(told["labels"], told)
        return 201, {"id": "1", "key": f"SHOP-{made.number}"}

    def _is_jira_user(self, request: Request) -> bool:
        is_cloud = request.path.endswith("/jql") or "accountId" in request.body.decode()
        wanted = {_BASIC} if is_cloud else {_BASIC, f"Bearer {TOKEN}"}
        return request.headers.get("Authorization") in wanted


class _Handler(http.server.BaseHTTPRequestHandler):
    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {name: value for name, [value] in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = dict(self.headers.items())
        request = Request(self.command, parts.path, query, headers, body)
        status, headers, said = self.server.systems.answer(request)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = _serve

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def ticket_systems():
    """Starts the server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.systems = Systems(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.systems
    server.shutdown()
    server.server_close()
