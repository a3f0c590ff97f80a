"""Two letters side by side."""

import time

import pytest
from support.factories import attempt, letter

PAGE = "/dead-letters/compare"

OWN = '  File "/srv/shop/tasks.py", line {}, in charge\n    pay(order_id)\n'
LIBRARY = '  File "/usr/lib/python3.11/site-packages/kombu/x.py", line 1, in y\n    z()\n'
HEAD = "Traceback (most recent call last):\n"


@pytest.fixture
def two(store, three):
    """Letters of one task that differ in an argument, a release and a line of the code."""
    store.letters.save(
        [
            letter(
                "one", args=[17], release="1.4.1", traceback=f"{HEAD}{LIBRARY}{OWN.format(9)}E: x",
                message="order 17: no currency 'EUX'",
            ),
            letter(
                "two", attempt(minutes=3), args=[18], traceback=f"{HEAD}{OWN.format(12)}E: x",
                message="order 18: no currency 'EUX'",
            ),
        ]
    )  # fmt: skip


@pytest.fixture
def page(ann, two):
    found = ann.get(f"{PAGE}?id=one&id=two")
    assert found.status == 200, found.text
    return found


def rows(page, section):
    """The rows of a section: the name of each, and its values."""
    inside = page.body.partition(f'id="{section}"')[2].partition("</section>")[0]
    texts = [row.split("</th>") for row in inside.split('<th scope="row">')[1:]]
    return dict(texts)


def test_what_differs_comes_first_and_is_marked(page):
    differing = rows(page, "dlq-differing")
    assert [*differing] == ["order_id", "Message", "Release", "First failed", "Last failed"]
    assert "<mark>17</mark>" in differing["order_id"]
    assert "order <mark>17</mark>: no currency" in differing["Message"]
    same = rows(page, "dlq-same")
    assert {"currency", "Task", "Exception", "Worker", "State"} <= {*same}
    assert page.body.index('id="dlq-differing"') < page.body.index('id="dlq-same"')
    links = [found["href"] for found, _ in page.find("a") if "/letters/" in found["href"]]
    assert links == ["/dead-letters/letters/one", "/dead-letters/letters/two"]


def test_tracebacks_are_a_diff_of_own_frames(page):
    old = [text for _, text in page.find("span", class_="dlq-diff-old")]
    new = [text for _, text in page.find("span", class_="dlq-diff-new")]
    assert any("line 9, in charge" in text for text in old)
    assert any("line 12, in charge" in text for text in new)
    assert "kombu" not in page.body


def test_equal_letters_have_one_traceback(ann, store, two):
    store.letters.save([letter("a", traceback=f"{HEAD}E: x"), letter("b", traceback=f"{HEAD}E: x")])
    page = ann.get(f"{PAGE}?id=a&id=b")
    assert "Nothing but the id." in page.text
    assert page.find("span", class_="dlq-diff-old") == []
    assert page.find("pre", class_="dlq-code dlq-traceback")[0][1].endswith("E: x")


def test_letters_of_different_tasks(ann, two):
    differing = rows(ann.get(f"{PAGE}?id=one&id=77e1"), "dlq-differing")
    assert {"order_id", "0", "Task", "Exception", "Queue"} <= {*differing}
    assert "none" in differing["0"]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 400, "two letters to compare them, not 0."),
        ("id=one&selected=1", 400, "two letters to compare them, not 1."),
        ("id=one&id=one", 400, "two letters to compare them, not 1."),
        ("id=one&id=two&id=77e1", 400, "two letters to compare them, not 3."),
        ("id=one&id=nowhere", 404, "No dead letter has an id"),
        ("id=one&task=charge", 400, "'task' is not a filter"),
    ],
)
def test_two_letters_are_needed(ann, two, query, status, said):
    answer = ann.get(f"{PAGE}?{query}")
    assert (answer.status, said in answer.text) == (status, True)


def test_hostile_letters_stay_text_and_take_no_time(ann, store, three):
    evil = '"><script>alert(1)</script>\u202e'
    for task_id, word in (("e1", "ab"), ("e2", "ba")):
        found = letter(
            task_id, message=evil + word * 900, args=[evil, word], kwargs={evil: word},
            traceback=f"{HEAD}{evil}\n" + f"{word}\n{evil}\n" * 5_000, worker=evil, task=evil,
        )  # fmt: skip
        store.letters.save([found])
    begun = time.process_time()
    page = ann.get(f"{PAGE}?id=e1&id=e2")
    assert time.process_time() - begun < 5.0
    assert page.status == 200
    assert "<script>alert" not in page.body
    assert "\u202e" not in page.body


def test_secrets_stay_hidden(ann, store, three):
    store.letters.save(
        [letter(name, args=[], kwargs={"token": "[redacted]"}, message=f"password={name}-s3cret")
         for name in ("e1", "e2")]
    )  # fmt: skip
    assert "s3cret" not in ann.get(f"{PAGE}?id=e1&id=e2").body


def test_a_flower_that_makes_no_changes_compares_too(visit, two):
    visitor = visit()
    assert visitor.get(f"{PAGE}?id=one&id=two").status == 200
    [(button, _)] = visitor.get("/dead-letters/letters").find("button", id="dlq-compare")
    assert button["formaction"] == PAGE
