"""The base of all our handlers: permission, headers and errors."""

from __future__ import annotations

import logging
from collections.abc import Collection
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError, RequestHandler

from celery_dlq.base.codec import dump_json
from celery_dlq.errors import CeleryDLQError, FilterError
from celery_dlq.flower import words
from celery_dlq.flower.http.permission import (
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
from celery_dlq.flower.http.problems import Problem, Refused, problem_of
from celery_dlq.flower.http.request import (
    Given,
    asked,
    check_names,
    first,
    read_filter,
    reason_in,
    sent,
    sent_json,
)
from celery_dlq.flower.http.site import Links, Site
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.lookup import NOT_KEPT, hash_secret_arguments, with_positions

if TYPE_CHECKING:
    BaseHandler = RequestHandler
else:
    from flower.views import BaseHandler

logger: logging.Logger = logging.getLogger(__name__)

_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})

#: Nothing from other sites and nothing inline, because anyone who can write to a queue decides the content of
#: a letter.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_SESSION_ENDED = "Your session has ended, so nothing was changed. Log in and try again."

_REPLAYED = (
    "This form was already sent, is older than twelve hours, or is from before the last restart of Flower. "
    "Nothing was changed; reload the page."
)


class Handler(BaseHandler):
    """Flower authenticates the requests; changes need further permission."""

    #: Whether every change needs the XSRF token of a browser.
    always_token = False
    #: The act that the handler runs; its route says which.
    act: str = ""

    def initialize(self, site: Site, act: str = "") -> None:
        """Called by Tornado for each request."""
        self.site = site
        self.links: Links = site.links
        self.act = act

    def set_default_headers(self) -> None:
        """Replaces Flower's headers, which let other sites read."""
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Security-Policy", POLICY)

    def options(self, *_: Any, **__: Any) -> None:
        """Answer without permission for any other site."""
        self.set_status(204)
        self.finish()

    def check_xsrf_cookie(self) -> None:
        """Does nothing: :meth:`prepare` checks the token after the user, on every version of Flower."""

    def prepare(self) -> None:
        """Check that the user is logged in, and may make changes."""
        if not self.current_user:
            self.refuse_stranger()
        elif self.request.method not in _LOOKING:
            self.check_change()

    def refuse_stranger(self) -> None:
        """Answer a request without a user."""
        raise Refused(401, _SESSION_ENDED)

    def check_change(self) -> None:
        """Check that this request may change something.

        :raises Refused: it may not.
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
            # Flower's version of this method skips the token in some cases.
            RequestHandler.check_xsrf_cookie(self)
        except HTTPError:
            raise Refused(403, UNPROVEN) from None

    @property
    def why_no_changes(self) -> str | None:
        """Why this Flower makes no changes; None if it does."""
        return why_no_changes(self.site.options)

    @property
    def actor(self) -> str:
        """The name of the user, for the audit."""
        return actor_of(
            self.current_user,
            self.request.headers,
            self.request.remote_ip or "?",
            self.site.options,
        )

    def asked(self, *names: str) -> Given:
        """The names and values of the query string.

        :param names: the names that it may have.
        :raises FilterError: it has another one, or they are not UTF-8.
        """
        given = asked(self.request)
        check_names(given, names)
        return given

    def filter_in(self, given: Given, *, others: Collection[str] = ()) -> Filter:
        """The filter in ``given``, whose arguments are also found in the positions that the app's tasks give
        them. A Flower without the tasks only knows the names in the messages.

        :param others: names that are allowed, but are not filters.
        :raises FilterError: a name or a value is invalid, or values are not kept.
        """
        wanted = read_filter(given, times.utc_now(), others=others)
        if wanted.asks_for_values and not self.site.search_values:
            raise FilterError(NOT_KEPT)
        wanted = hash_secret_arguments(self.site.redactor, wanted)
        return with_positions(self.site.app, wanted) if wanted.args else wanted

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Log errors, but not refusals, which the answer explains."""
        if isinstance(value, CeleryDLQError):
            logger.warning("%s %s: %s", self.request.method, self.request.path, value)
        elif not isinstance(value, Refused):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an error."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        problem = problem_of(error, status_code)
        self.set_status(problem.status)
        if problem.status == 401 and self.site.options.basic_auth:
            self.set_header("WWW-Authenticate", 'Basic realm="flower"')
        if problem.status == 503:
            self.set_header("Retry-After", "10")
        if not hasattr(self, "_current_user"):
            # The error may come from reading the current user.
            self.current_user = None
        self.show_problem(problem)

    def show_problem(self, problem: Problem) -> None:
        """Write the error as a page or as JSON."""
        raise NotImplementedError


class Page(Handler):
    """A page for people. It works without JavaScript."""

    #: The page's entry in our navigation.
    tab = "letters"
    always_token = True

    def refuse_stranger(self) -> None:
        """Redirect to the login; the data of a form is not kept."""
        if self.request.method not in {"GET", "HEAD"}:
            raise Refused(403, _SESSION_ENDED)
        url = self.get_login_url()
        self.redirect(
            f"{url}{'&' if '?' in url else '?'}{words.query(next=self.request.uri or '/')}"
        )

    def page(self, template: str, view: Any, status: int = 200, **others: Any) -> None:
        """Render one of our templates with ``view``, ``others``, and the values of every page: ``words``,
        ``links``, ``tab``, ``mark``."""
        self.set_status(status)
        # Read it before the headers are written, because it may set its cookie.
        token = self.xsrf_token.decode()
        self.render(
            f"dlq_{template}.html",
            view=view, words=words, links=self.links, tab=self.tab, token=token, mark=self.mark,
            locked=self.why_no_changes, **others,
        )  # fmt: skip

    def mark(self, act: str) -> str:
        """A mark for a form of this user that runs ``act``."""
        return self.site.forms.mark(act, self.actor)

    def sent_for(self, act: str) -> Given:
        """The names and values of a form that runs ``act``; takes its mark.

        :raises FilterError: they are not UTF-8.
        :raises Refused: the form has no mark that is valid, or was sent before.
        """
        given = sent(self.request)
        self.take_mark(given, act)
        return given

    def take_mark(self, given: Given, act: str) -> None:
        """Take the mark of a form that runs ``act``.

        :raises Refused: it has none that is valid, or was sent before.
        """
        if not self.site.forms.take(first(given, "mark"), act, self.actor):
            raise Refused(409, _REPLAYED)

    def show_problem(self, problem: Problem) -> None:
        """Write the error as a page that names the next step."""
        self.page("error", problem, problem.status)

    def see(self, address: str) -> None:
        """Redirect after a form, so that reloading does not send it again."""
        self.redirect(address, status=303)


class Api(Handler):
    """The REST API. Like Flower's own, it refuses requests without authentication, unless it was opened."""

    def prepare(self) -> None:
        """Check that Flower has authentication, or that its API was opened."""
        if not asks_who(self.site.options) and not is_open():
            raise Refused(401, NO_AUTHENTICATION)
        super().prepare()

    def sent_reason(self) -> str:
        """The reason of an act, in a body with no other field.

        :raises FilterError: the body has another field, or is not a JSON object.
        """
        given = sent_json(self.request)
        if given.keys() - {"why"}:
            raise FilterError("The body may have only the field why; leave the others out.")
        return reason_in(given)

    def reply(self, record: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(dump_json(record))

    def show_problem(self, problem: Problem) -> None:
        """Write the error as JSON."""
        said = {"status": problem.status, "title": problem.title, "text": problem.text}
        self.reply({"error": {**said, **problem.facts}}, problem.status)
