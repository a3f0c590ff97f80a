"""What all our handlers have in common: who may, what is sent along, how an error is answered."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError, RequestHandler

from celery_dlq.codec import dump_json
from celery_dlq.errors import CeleryDLQError
from celery_dlq.flower import words
from celery_dlq.flower.permission import (
    FOREIGN,
    NO_AUTHENTICATION,
    UNPROVEN,
    actor_of,
    asks_who,
    is_browser,
    is_foreign,
    is_open,
    why_no_changes,
)
from celery_dlq.flower.problems import Problem, Refused, problem_of
from celery_dlq.flower.site import Site

if TYPE_CHECKING:
    BaseHandler = RequestHandler
else:
    from flower.views import BaseHandler

logger = logging.getLogger(__name__)

_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})

#: Nothing from elsewhere, nothing inline: a letter's content is whatever somebody sent to a queue.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_SESSION_ENDED = "Your session has ended, and nothing was changed. Log in and repeat what you did."


class Handler(BaseHandler):
    """A handler of ours. Its requests are authenticated by Flower; changes are asked for more."""

    #: Whether every change needs the token of a browser.
    always_token = False

    def initialize(self, site: Site) -> None:
        """Called by Tornado for each request."""
        self.site, self.links = site, site.links

    def set_default_headers(self) -> None:
        """Without those by which Flower lets other sites read."""
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", POLICY)

    def options(self, *_: Any, **__: Any) -> None:
        """No other site may call."""
        self.set_status(204)
        self.finish()

    def check_xsrf_cookie(self) -> None:
        """Left to :meth:`prepare`: it asks on every version of Flower, and who it is comes first."""

    def prepare(self) -> None:
        """Let only those through who may."""
        if not self.current_user:
            self.refuse_stranger()
        elif self.request.method not in _LOOKING:
            self.check_change()

    def refuse_stranger(self) -> None:
        """Answer who is not known."""
        raise Refused(401, _SESSION_ENDED)

    def check_change(self) -> None:
        """Let only those through who may change something.

        :raises Refused: they may not.
        """
        why_not = self.why_no_changes
        if why_not:
            raise Refused(403, why_not)
        headers = self.request.headers
        if is_foreign(headers, self.request.host):
            raise Refused(403, FOREIGN)
        if self.always_token or is_browser(headers):
            self._check_token()

    def _check_token(self) -> None:
        try:
            # Flower's own asks for a token only in some cases.
            RequestHandler.check_xsrf_cookie(self)
        except HTTPError:
            raise Refused(403, UNPROVEN) from None

    @property
    def why_no_changes(self) -> str | None:
        """Why this Flower changes nothing; None when it does."""
        return why_no_changes(self.site.options)

    @property
    def actor(self) -> str:
        """Who asks, for the audit."""
        return actor_of(
            self.current_user,
            self.request.headers,
            self.request.remote_ip or "?",
            self.site.options,
        )

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """What is said to who asked is no news in the log."""
        if isinstance(value, CeleryDLQError):
            logger.warning("%s %s: %s", self.request.method, self.request.path, value)
        elif not isinstance(value, Refused):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        problem = problem_of(error, status_code)
        self.set_status(problem.status)
        if problem.status == 401 and self.site.options.basic_auth:
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        if problem.status == 503:
            self.set_header("Retry-After", "10")
        if not hasattr(self, "_current_user"):
            # Asking who it is may be what has failed.
            self.current_user = None
        self.show_problem(problem)

    def show_problem(self, problem: Problem) -> None:
        """Put an error out."""
        raise NotImplementedError


class Page(Handler):
    """A page for people. Without JavaScript it can be read, and its forms sent."""

    #: The entry of our navigation that it belongs to.
    tab = "letters"
    always_token = True

    def refuse_stranger(self) -> None:
        """Ask them to log in; what they sent is not kept."""
        if self.request.method not in {"GET", "HEAD"}:
            raise Refused(403, _SESSION_ENDED)
        url = self.get_login_url()
        self.redirect(
            f"{url}{'&' if '?' in url else '?'}{words.query(next=self.request.uri or '/')}"
        )

    def page(self, template: str, view: Any, status: int = 200) -> None:
        """Render a template of ours; it has ``view``, ``words``, ``links`` and ``tab``."""
        self.set_status(status)
        # Before the headers are written: it may set the cookie that belongs to it.
        token = self.xsrf_token.decode()
        self.render(
            f"dlq_{template}.html",
            view=view, words=words, links=self.links, tab=self.tab, token=token,
            locked=self.why_no_changes,
        )  # fmt: skip

    def show_problem(self, problem: Problem) -> None:
        """As a page that says what to do."""
        self.page("error", problem, problem.status)

    def see(self, address: str) -> None:
        """Send the browser on after a form, so that reloading does not send it again."""
        self.redirect(address, status=303)


class Api(Handler):
    """REST, under the rules of Flower's own: without authentication it answers nobody unless opened."""

    def prepare(self) -> None:
        """Let only those through who may."""
        if not asks_who(self.site.options) and not is_open():
            raise Refused(401, NO_AUTHENTICATION)
        super().prepare()

    def reply(self, record: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(dump_json(record))

    def show_problem(self, problem: Problem) -> None:
        """As JSON."""
        said = {"status": problem.status, "title": problem.title, "text": problem.text}
        self.reply({"error": {**said, **problem.facts}}, problem.status)
