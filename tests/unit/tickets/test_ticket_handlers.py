"""One ticket for each group, in each system, on a local server that speaks its API."""

import pickle
import socket

import pytest
from support.factories import T0, letter
from support.servers.ticket_systems import TOKEN
from support.stores.planted_secrets import SECRET, planted_letter

from celery_dlq import Leave, Ticket
from celery_dlq.errors import HandlerError, SettingsError, TicketError
from celery_dlq.model.handling import GroupTicket, TicketKind
from celery_dlq.tickets import GitHubIssues, GitLabIssues, JiraIssues

MARK = "dlq-9c1e0000deadbeef"
URLS = {
    "github": "https://github.test/acme/shop/issues/{}", "gitlab": "https://gitlab.test/-/issues/{}",
}  # fmt: skip


def url_of(systems, kind, number=1):
    return URLS.get(kind, systems.url + "/browse/SHOP-{}").format(number)


# -- One ticket for each group ---------------------------------------------------------------------


def test_a_group_gets_a_ticket_and_its_next_letters_get_the_same(systems, make, kind, given):
    handler = make(kind)
    assert handler(given()) == Ticket(url_of(systems, kind))
    # As after a worker that was killed before the ticket was stored: the letter knows of none.
    assert handler(given(letter("0d40"))) == Ticket(url_of(systems, kind))
    assert len(systems.issues) == 1
    other = given(letter("0d41", fingerprint="aaaa0000deadbeef"))
    assert handler(other) == Ticket(url_of(systems, kind, 2))
    assert [issue.labels[0] for issue in systems.issues] == [MARK, "dlq-aaaa0000deadbeef"]


def test_a_group_that_has_a_ticket_is_left_without_a_request(systems, make, kind, given):
    stored = GroupTicket(
        fingerprint="9c1e0000deadbeef",
        kind=TicketKind.TICKET,
        url="https://t/1",
        handler="h",
        at=T0,
    )
    assert make(kind)(given(tickets=(stored,))) == Leave()
    assert systems.requests == []


def test_a_closed_ticket_is_not_used_again(systems, make, kind, given):
    systems.add([MARK], is_open=False)
    assert make(kind)(given()) == Ticket(url_of(systems, kind, 2))


def test_a_ticket_that_was_made_although_no_answer_came_is_found(systems, make, kind, given):
    real = systems.answer

    def lose(request):
        status, headers, body = real(request)
        return (502, {}, b"bad gateway") if status == 201 else (status, headers, body)

    systems.answer = lose
    with pytest.raises(TicketError, match="answered 502"):
        make(kind)(given())
    assert make(kind)(given()) == Ticket(url_of(systems, kind))
    assert len(systems.issues) == 1


def test_a_pull_request_with_the_label_is_not_a_ticket(systems, make, given):
    systems.add([MARK], is_pull_request=True)
    assert make("github")(given()) == Ticket(url_of(systems, "github", 2))


def test_an_issue_of_a_server_that_ignores_the_filter_is_not_taken(systems, make, given):
    for kind, other in (
        ("github", b'[{"html_url": "https://t/9", "labels": [{"name": "bug"}]}]'),
        ("gitlab", b'[{"web_url": "https://t/9", "labels": ["bug"]}]'),
    ):
        systems.answers.append((200, {}, other))
        assert make(kind)(given()).url != "https://t/9"


@pytest.mark.parametrize(
    "url", ["https://bot:{}@t.test/1", "https://t.test/1?private_token={}&x=1"]
)
def test_an_address_is_kept_without_its_secrets(systems, make, given, url, caplog):
    systems.drops_labels = True
    answer = b'{"html_url": "%s", "labels": []}' % url.format(SECRET).encode()
    systems.answers += [(200, {}, b"[]"), (201, {}, answer)]
    assert make("github")(given()).url == url.format("[redacted]")
    assert url.format("[redacted]") in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_token_that_may_not_set_labels_leads_to_a_warning(systems, make, kind, given, caplog):
    systems.drops_labels = True
    assert make(kind)(given()) == Ticket(url_of(systems, kind))
    assert f"has not given {url_of(systems, kind)} the label {MARK}" in caplog.text
    systems.drops_labels = False
    caplog.clear()
    make(kind)(given())
    assert caplog.text == ""


# -- What is sent ----------------------------------------------------------------------------------


def test_github_gets_an_issue(systems, make, given):
    make("github", labels=("celery", "bug"), assignees=["ann"])(given())
    looked, made = systems.requests
    assert looked.query == {"labels": MARK, "state": "open", "per_page": "50"}
    assert looked.headers["X-Github-Api-Version"] == "2022-11-28"
    assert looked.headers["Accept"] == "application/vnd.github+json"
    assert {one.headers["User-Agent"] for one in systems.requests} == {"celery-dlq"}
    assert made.told["title"] == "shop.charge: ValueError: bad currency"
    assert made.told["labels"] == [MARK, "celery", "bug"]
    assert made.told["assignees"] == ["ann"]


def test_github_enterprise_has_its_api_under_a_path(systems, make, given):
    make("github", url=f"{systems.url}/api/v3/")(given())
    assert {one.path for one in systems.requests} == {"/api/v3/repos/acme/shop/issues"}


def test_gitlab_gets_an_issue_in_a_project_by_path_or_number(systems, make, given):
    make("gitlab", labels=["celery"], assignee_ids=(3,))(given())
    looked, made = systems.requests
    assert looked.path == "/api/v4/projects/acme%2Fshop/issues"
    assert looked.query == {"labels": MARK, "state": "opened", "per_page": "1"}
    assert made.told["labels"] == f"{MARK},celery"
    assert made.told["assignee_ids"] == [3]
    by_number = GitLabIssues(17, token=TOKEN, url=systems.url)
    assert by_number(given()) == Ticket(url_of(systems, "gitlab"))
    assert systems.requests[-1].path == "/api/v4/projects/17/issues"


def test_jira_cloud_gets_an_issue_of_its_own_search(systems, make, given):
    make("jira cloud", labels=["celery"], assignee="5b10:a2", issue_type="Task")(given())
    looked, made = systems.requests
    assert looked.path == "/rest/api/2/search/jql"
    assert looked.query["maxResults"] == "1"
    told = made.told["fields"]
    assert told["project"] == {"key": "SHOP"}
    assert told["issuetype"] == {"name": "Task"}
    assert told["labels"] == [MARK, "celery"]
    assert told["assignee"] == {"accountId": "5b10:a2"}


def test_jira_data_center_gets_its_own_markup(systems, make, given):
    make("jira data center", assignee="ann")(given())
    told = systems.created[0].told["fields"]
    assert told["assignee"] == {"name": "ann"}
    assert told["description"].count("{noformat}") == 6
    make("jira data center")(given(letter(fingerprint="aaaa0000deadbeef")))
    assert "assignee" not in systems.created[1].told["fields"]


# -- Secrets ---------------------------------------------------------------------------------------


def test_no_ticket_has_arguments_headers_or_known_secrets(systems, make, kind, given):
    stored = planted_letter(args=["4111-argument"], kwargs={"note": "4112-argument"})
    make(kind)(given(stored))
    [made] = systems.created
    text = made.body.decode()
    assert "[redacted]" in text
    assert "Traceback" in text
    for secret in (SECRET, "4111-argument", "4112-argument", "X-Auth-Token", "argsrepr", TOKEN):
        assert secret not in text


def test_no_definition_shows_a_secret(make, kind):
    assert TOKEN not in f"{make(kind)!r} {make(kind)!s}"


def test_equal_definitions_are_equal_and_can_be_copied(make, kind):
    assert make(kind) == make(kind)
    assert make(kind) != make(kind, app="other")
    assert pickle.loads(pickle.dumps(make(kind))) == make(kind)


@pytest.mark.parametrize("status", [400, 401, 503])
def test_no_error_shows_a_token_that_the_server_repeats(systems, make, kind, given, status):
    systems.answers.append((status, {}, f"wrong login: {TOKEN}".encode()))
    with pytest.raises((HandlerError, TicketError)) as caught:
        make(kind)(given())
    assert TOKEN not in str(caught.value)
    assert "wrong login: [redacted]" in str(caught.value)


# -- Errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "meaning"),
    [
        ("github", 401, "It does not accept the login. Check token"),
        ("github", 403, "The login may not do this. Allow it to read and write issues."),
        ("gitlab", 404, "or the login may not see it. Check url and the project."),
        ("gitlab", 422, "It does not accept the issue. Check labels, assignees and the type."),
        ("jira cloud", 401, "Check token (Jira Cloud: and email)"),
        ("jira data center", 410, "give email if this is Jira Cloud."),
        ("gitlab", 418, "It does not accept the request. Check the definition."),
    ],
)  # fmt: skip
def test_a_refusal_is_final_and_says_what_to_do(systems, make, given, kind, status, meaning):
    systems.answers.append((status, {}, b'{"message":\n"no"}'))
    with pytest.raises(HandlerError) as caught:
        make(kind)(given())
    said = str(caught.value)
    assert f' at {systems.url} answered {status}: {{"message": "no"}}. ' in said
    assert said.endswith(meaning) or meaning in said
    assert systems.issues == []


@pytest.mark.parametrize(
    ("status", "headers", "meaning"),
    [
        (429, {}, "It had too many requests"),
        (403, {"Retry-After": "60"}, "It had too many requests"),
        (
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1999999999"},
            "too many requests",
        ),
        (408, {}, "It cannot do this now"),
        (500, {}, "It cannot do this now"),
        (502, {}, "It cannot do this now"),
        (507, {}, "It cannot do this now"),
    ],
)
def test_what_may_pass_is_worth_another_try(systems, make, kind, given, status, headers, meaning):
    systems.answers.append((status, headers, b""))
    with pytest.raises(TicketError, match=meaning) as caught:
        make(kind)(given())
    assert f"answered {status}. " in str(caught.value)
    assert str(caught.value).endswith("The handler is called again in a minute or two.")
    assert make(kind)(given()) == Ticket(url_of(systems, kind))


def test_a_redirect_is_not_followed(systems, make, kind, given):
    systems.answers.append((301, {"Location": f"{systems.url}/elsewhere"}, b""))
    with pytest.raises(
        HandlerError, match=r"answered 301\. It redirects, and that is not followed"
    ):
        make(kind)(given())
    assert len(systems.requests) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Log in</html>", "it did not answer in JSON. Is url the address of its API?"),
        (b"", "not answer in JSON"),
        (b"\xff\xfe", "not answer in JSON"),
        (b"[" * 100_000, "not answer in JSON"),
        (b'"text"', "Is url the address of its API?"),
        (b'["text"]', "Is url the address of its API?"),
        (b'[{"labels": [{"name": "dlq-9c1e0000deadbeef"}, "dlq-9c1e0000deadbeef"]}]',
         "Is url the address of its API?"),
        (b"{}", "Is url the address of its API?"),
        (b'{"issues": [{"key": 7}], "url": 7}', "Is url the address of its API?"),
        (b" " * 8_000_001, "its answer is larger than 8000000 bytes"),
    ],
)  # fmt: skip
def test_a_senseless_answer_is_an_error(systems, make, kind, given, body, said):
    systems.answers.append((200, {}, body))
    with pytest.raises(HandlerError) as caught:
        make(kind)(given())
    assert said in str(caught.value)
    assert systems.issues == []


def test_an_answer_about_a_new_ticket_without_an_address_is_an_error(systems, make, kind, given):
    nothing = b'{"issues": []}' if "jira" in kind else b"[]"
    systems.answers += [(200, {}, nothing), (201, {}, b'{"id": 1}')]
    with pytest.raises(HandlerError, match=r"its answer has no address as (html_url|web_url|key)"):
        make(kind)(given())


def test_a_system_that_is_away_is_worth_another_try(make, kind, given):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(TicketError, match=rf"{url} does not answer: URLError"):
        make(kind, url=url)(given())


def test_a_system_that_says_nothing_is_given_up_until_the_next_try(make, kind, given):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TicketError, match=r"does not answer: (TimeoutError|URLError)"):
            make(kind, url=url, timeout=0.05)(given())


# -- Definitions -----------------------------------------------------------------------------------


def github(repo="acme/shop", **changes):
    return GitHubIssues(repo, **{"token": TOKEN, **changes})


def gitlab(project="acme/shop", **changes):
    return GitLabIssues(project, **{"token": TOKEN, **changes})


def jira(project="SHOP", **changes):
    return JiraIssues(project, **{"token": TOKEN, "url": "https://jira.acme.example", **changes})


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda: github(""), "repo = '' is not a repository as owner/name, such as 'acme/shop'"),
        (lambda: github("shop"), "repo = 'shop' is not a repository as owner/name"),
        (lambda: github("https://github.com/acme/shop"), "is not a repository as owner/name"),
        (lambda: github(None), "repo = None is not a repository as owner/name"),
        (lambda: github(labels="celery"), "labels = 'celery' is not a list of names"),
        (lambda: github(assignees=(3,)), "assignees = (3,) is not a list of login names"),
        (lambda: github(timeout=0), "timeout = 0 is not a number of seconds from 0.05 to 300"),
        (lambda: github(app="a b"), "app = 'a b' is not the name after `celery -A`"),
        (lambda: gitlab("shop"), "project = 'shop' is not a project as group/name"),
        (lambda: gitlab(0), "project = 0 is not a project as group/name"),
        (lambda: gitlab(labels=("a,b",)), "is not a list of names, such as ('celery',), without commas"),
        (lambda: gitlab(assignee_ids=("ann",)), "assignee_ids = ('ann',) is not a list of numbers of users"),
        (lambda: jira('SHOP" OR 1=1'), "is not the key of a project, such as 'SHOP'"),
        (lambda: jira(labels=("a b",)), "is not a list of names, such as ('celery',), without blanks"),
        (lambda: jira(email="ann"), "email = 'ann' is not an email address"),
        (lambda: jira(issue_type=""), "issue_type = '' is not a non-empty string"),
    ],
)  # fmt: skip
def test_a_wrong_definition_is_refused_at_once(define, said):
    with pytest.raises(SettingsError) as caught:
        define()
    assert said in str(caught.value)
    assert str(caught.value).endswith("See `celery dlq help repair-and-escalate`.")


@pytest.mark.parametrize("define", [github, gitlab, jira])
@pytest.mark.parametrize("token", ["", " ", f"{TOKEN}\n", f" {TOKEN}", "tökèn-Zq7", None, 7])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(define, token):
    with pytest.raises(
        SettingsError, match="token is not a text of printable ASCII characters"
    ) as caught:
        define(token=token)
    assert "Zq7" not in str(caught.value)


@pytest.mark.parametrize("define", [github, gitlab, jira])
@pytest.mark.parametrize(
    "url",
    [
        "", "api.github.com", "http://api.github.com", "ftp://localhost", "https://", "https://[", None,
        "https://h:port", "https://ann:s3cret@h", "https://h/#part", "https://h/a b", "https://hö",
        "https://h/?a=1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_safe_is_refused(define, url):
    with pytest.raises(
        SettingsError, match=r"url.* is not an address that begins with https:// \(http"
    ):
        define(url=url)


def test_all_problems_are_named_at_once():
    with pytest.raises(
        SettingsError, match=r"^GitHubIssues: timeout = 0 .*; repo = '' .*; token is"
    ):
        github("", token="", timeout=0)
