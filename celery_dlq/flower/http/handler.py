"""The base of all our handlers: the values of a request, permission, headers, and answers as a page or as
JSON. Errors are a status, a title, and a sentence that names the next step."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http.client import responses
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError, RequestHandler

from celery_dlq import errors
from celery_dlq.base.codec import dump_json
from celery_dlq.base.redact import hide_known
from celery_dlq.errors import CeleryDLQError, FilterError
from celery_dlq.flower import charts, words
from celery_dlq.flower.http import permission
from celery_dlq.flower.http.request import (
    FilterForm,
    Given,
    check_names,
    first_value,
    form_values,
    json_values,
    query_values,
    read_filter,
)
from celery_dlq.flower.http.site import Links, Site
from celery_dlq.store.base import Filter
from celery_dlq.view import times
from celery_dlq.view.lookup import NOT_KEPT, hash_secret_arguments, with_positions
from celery_dlq.view.text import visible

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


class Refused(HTTPError):
    """A request that was refused.

    :param status: the HTTP status.
    :param why: the reason, shown to the user.
    :param facts: further values for programs.
    """

    def __init__(self, status: int, why: str, **facts: object) -> None:
        super().__init__(status)
        self.why = why
        self.facts = facts


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error as it is shown to the user."""

    status: int
    title: str
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)


_TITLES = {
    400: "Invalid request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    409: "No longer possible",
    503: "The dead-letter store does not answer",
}

_STATUS: tuple[tuple[int, tuple[type[errors.CeleryDLQError], ...]], ...] = (
    (202, (errors.ApprovalNeeded,)),
    (404, (errors.UnknownLetter, errors.UnknownOperation, errors.UnknownGroup, errors.UnknownAutomation,
           errors.UnknownRequest)),
    (400, (errors.AmbiguousId, FilterError, errors.TriageError, errors.OrdersError, errors.RepairError)),
    (409, (errors.OperationError, errors.RequestRefused)),
    (503, (errors.SettingsError, errors.StoreError)),
)  # fmt: skip

_TEXTS = {
    400: "The request cannot be read; its address must be UTF-8, written with percent signs.",
    401: "Flower needs a user name and a password; log in with valid ones.",
    404: "This page does not exist. Go back to the overview.",
    405: "This address does not accept this HTTP method.",
}

_BUG = "Something went wrong. See Flower's log for details."


def problem_of(error: BaseException | None, status: int) -> Problem:
    """The problem that describes ``error``.

    :param status: Tornado's HTTP status for it.
    """
    phrase, facts = responses.get(status, "Error"), dict[str, object]()
    if isinstance(error, CeleryDLQError):
        status = next((status for status, kinds in _STATUS if isinstance(error, kinds)), 500)
        said = visible(" ".join(hide_known(str(error)).split()))
        text = said if said.endswith((".", "!", "?")) else f"{said}."
    elif isinstance(error, Refused):
        status, text, facts = error.status_code, error.why, error.facts
    else:
        text = _TEXTS.get(status) or (f"{phrase}." if isinstance(error, HTTPError) else _BUG)
    title = _TITLES.get(status) or responses.get(status, "Error")
    return Problem(status=status, title=title, text=text, facts=facts)


class Handler(BaseHandler):
    """Answers for a resource: with a page for people, which works without JavaScript, or with JSON in the
    REST API. Flower authenticates the requests; changes need further permission."""

    #: The page's entry in our navigation.
    tab = "letters"
    #: The act that the handler runs; its route says which.
    act: str = ""
    #: Whether the address is in the REST API.
    is_api: bool = False
    #: The HTTP methods that only the page has.
    of_page: Collection[str] = ()

    def initialize(self, site: Site, act: str = "", *, is_api: bool = False) -> None:
        """Called by Tornado for each request."""
        self.site = site
        self.links: Links = site.links
        self.act, self.is_api = act, is_api

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
        """Check that the user is logged in, and may make changes. Like Flower's own, the REST API refuses
        requests without authentication, unless it was opened."""
        if self.is_api and not permission.asks_who(self.site.options) and not permission.is_open():
            raise Refused(401, permission.NO_AUTHENTICATION)
        if not self.current_user:
            self._refuse_stranger()
        elif not self._has_role("read"):
            raise Refused(403, permission.LACKS_ROLE.format("read"))
        elif self.is_api and self.request.method in self.of_page:
            raise HTTPError(405)
        elif self.request.method not in _LOOKING:
            self._check_change()

    def _refuse_stranger(self) -> None:
        """Redirect a page to the login; the data of a form is not kept."""
        if self.is_api or self.request.method not in {"GET", "HEAD"}:
            raise Refused(401 if self.is_api else 403, _SESSION_ENDED)
        url = self.get_login_url()
        self.redirect(
            f"{url}{'&' if '?' in url else '?'}{words.query([('next', self.request.uri or '/')])}"
        )

    def _check_change(self) -> None:
        """Check that this request may change something.

        :raises Refused: it may not.
        """
        self.check_act()
        headers = self.request.headers
        if permission.is_foreign(headers, self.request.host):
            raise Refused(403, permission.FOREIGN)
        if self.is_api and not permission.is_browser(headers):
            return
        try:
            # Flower's version of this method skips the token in some cases.
            RequestHandler.check_xsrf_cookie(self)
        except HTTPError:
            raise Refused(403, permission.UNPROVEN) from None

    def check_act(self) -> None:
        """Check that this user may run the act of this address.

        :raises Refused: this Flower makes no changes, or the user does not have the role.
        """
        if self.why_no_changes:
            raise Refused(403, self.why_no_changes)
        if not self.may(self.act):
            raise Refused(403, permission.LACKS_ROLE.format(permission.ROLE_OF.get(self.act)))

    def may(self, act: str) -> bool:
        """Whether this user may run ``act``."""
        return not self.why_no_changes and self._has_role(permission.ROLE_OF.get(act, ""))

    def _has_role(self, role: str) -> bool:
        user = self.current_user
        name = permission.name_of(user, self.request.headers, self.site.options)
        roles = self.site.settings.roles
        return permission.has_role(roles, role, name, is_address=isinstance(user, str))

    @property
    def why_no_changes(self) -> str | None:
        """Why this Flower makes no changes; None if it does."""
        return permission.why_no_changes(self.site.options)

    @property
    def actor(self) -> str:
        """The name of the user, for the audit."""
        return permission.actor_of(
            self.current_user,
            self.request.headers,
            self.request.remote_ip or "?",
            self.site.options,
        )

    def values(self) -> Given:
        """The names and values of the request: in its address, its form, or its JSON object.

        :raises FilterError: they cannot be read.
        """
        if self.request.method in _LOOKING:
            return query_values(self.request)
        return json_values(self.request) if self.is_api else form_values(self.request)

    def known_values(self, *names: str) -> Given:
        """The names and values of the request.

        :param names: the names that it may have.
        :raises FilterError: it has another one, or they cannot be read.
        """
        given = self.values()
        check_names(given, names)
        return given

    def act_values(self, act: str, *names: str) -> Given:
        """The names and values of a request that runs ``act``. The mark of its form is taken.

        :param names: the names that a JSON object may have.
        :raises FilterError: it has another one, or they cannot be read.
        :raises Refused: the form has no mark that is valid, or was sent before.
        """
        given = self.values()
        if self.is_api:
            check_names(given, names, "a field")
        else:
            self.take_mark(given, act)
        return given

    def take_mark(self, given: Given, act: str) -> None:
        """Take the mark of a form that runs ``act``.

        :raises Refused: it has none that is valid, or was sent before.
        """
        if not self.site.forms.take(first_value(given, "mark"), act, self.actor):
            raise Refused(409, _REPLAYED)

    def filter_in(self, given: Given, *, others: Collection[str] = ()) -> Filter:
        """The filter in ``given``, whose arguments are also found in the positions that the app's tasks give
        them. A Flower without the tasks only knows the names in the messages.

        :param others: names that are allowed, but are not filters.
        :raises FilterError: a name or a value is invalid, or values are not kept.
        """
        wanted = read_filter(given, times.utc_now(), others=others)
        if wanted.asks_for_values and not self.site.settings.search_values:
            raise FilterError(NOT_KEPT)
        wanted = hash_secret_arguments(self.site.redactor, wanted)
        return with_positions(self.site.app, wanted) if wanted.args else wanted

    def page(
        self, template: str, view: Any, status: int = 200, *, done: str = "", **others: Any
    ) -> None:
        """Render one of our templates with ``view``, ``others``, and the values of every page: ``words``,
        ``charts``, ``site``, ``links``, ``tab``, ``mark``, ``may``.

        :param done: what an act has done that has led to the page.
        """
        self.set_status(status)
        # Read it before the headers are written, because it may set its cookie.
        token = self.xsrf_token.decode()
        self.render(
            f"dlq_{template}.html",
            view=view, words=words, charts=charts, site=self.site, links=self.links, tab=self.tab,
            token=token, mark=self.mark, locked=self.why_no_changes, may=self.may, done=done,
            **others,
        )  # fmt: skip

    def mark(self, act: str) -> str:
        """A mark for a form of this user that runs ``act``."""
        return self.site.forms.mark(act, self.actor)

    def see(self, address: str) -> None:
        """Redirect after a form, so that reloading does not send it again."""
        self.redirect(address, status=303)

    def reply(self, record: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(dump_json(record))

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Log errors, but not refusals, which the answer explains."""
        if isinstance(value, CeleryDLQError):
            logger.warning("%s %s: %s", self.request.method, self.request.path, value)
        elif not isinstance(value, Refused):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an error, as a page that names the next step or as JSON."""
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
        if isinstance(error, errors.ApprovalNeeded):
            self._show_request(error.request, problem)
        elif self.is_api:
            said = {"status": problem.status, "title": problem.title, "text": problem.text}
            self.reply({"error": {**said, **problem.facts}}, problem.status)
        else:
            self.show_problem(problem)

    def _show_request(self, request_id: str, problem: Problem) -> None:
        """Answer that an act waits for a second person."""
        if self.is_api:
            self.set_header("Location", self.links.api("requests", request_id))
            self.reply({"request": request_id, "text": problem.text}, problem.status)
        else:
            self.see(self.links.page("requests", request_id))

    def show_problem(self, problem: Problem) -> None:
        """Write the error as a page."""
        self.page("error", problem, problem.status)


class ListHandler(Handler):
    """Answers for a list. Its page shows an error in the filters beside their form."""

    #: The name of the template, and the values for it.
    template = ""
    view: type[FilterForm] = FilterForm

    def show_problem(self, problem: Problem) -> None:
        """Write the error as the page with the form, if the form can correct it."""
        if problem.status != 400:
            super().show_problem(problem)
            return
        try:
            given = self.values()
        except FilterError:
            given = {}
        self.page(self.template, self.view(given=given, problem=problem.text), 400)
