"""--arg and --value."""

import pytest
from support.factories import T0, attempt, letter

from celery_dlq import DeadLetterQueue
from celery_dlq.store.sql import SQLStore


def at(task_id, number, **changes):
    return letter(task_id, attempt(minutes=number), **changes)


@pytest.fixture
def orders(store):
    store.letters.save(
        [
            at("by-position", 1, args=[4711], kwargs={}),
            at("by-name", 2, args=[], kwargs={"order_id": "4711", "lines": [{"sku": "x-1"}]}),
            at("other-task", 3, args=[4711], kwargs={}, task="shop.mail"),
            at("in-message", 4, args=[], kwargs={}, message="no order 4711"),
        ]
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--arg", "order_id=4711"], ["by-name", "by-position"]),
        (["--arg", "lines.sku=x-1"], ["by-name"]),
        (["--arg", "0=4711"], ["other-task", "by-position"]),
        (["--value", "4711"], ["in-message", "other-task", "by-name", "by-position"]),
        (["--value", "4711", "--value", "x-1"], ["by-name"]),
        (["--value", "4711", "--task", "mail"], ["other-task"]),
        (["--arg", "order_id=471"], []),
        (["--arg", "no_such_name=4711"], []),
    ],
)
def test_letters_are_listed_by_their_values(read, orders, options, expected):
    assert [row["task_id"] for row in read("list", *options)] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--arg", "order_id"], "'order_id' is not an argument; write its name, =, and its value"),
        (["--arg", "=4711"], "'=4711' is not an argument"),
        (["--value", ""], "it is empty; give it a value, or leave it out"),
        (["--value", "x" * 256], "A value has 1 to 255 characters, not 256; search for a part"),
        (["--value", "4711", "--state", "parked"], "The values of parked retries are not kept"),
    ],
)
def test_bad_values_are_refused(run, orders, options, said):
    done = run("list", *options)
    assert done.exit_code != 0
    assert said in done.stderr


def test_an_act_takes_the_letters_with_a_value(run, read, orders):
    done = run("discard", "--arg", "order_id=4711", "--yes", "--why", "paid twice")
    assert done.exit_code == 0
    assert [row["task_id"] for row in read("list")] == ["in-message", "other-task"]


def test_a_search_says_which_letters_it_may_miss(run, app, store):
    other = SQLStore(app.conf.dlq_store_url, value_limit=0)
    other.letters.save([at("old", 0, args=[7])])
    other.close()
    done = run("list", "--value", "7")
    assert "old" not in done.stdout
    assert f"first failed on {T0.isoformat()} or before may be missing" in done.stderr
    while store.values.add(letters=100):
        pass
    done = run("list", "--value", "7")
    assert "old" in done.stdout
    assert not done.stderr


def test_values_that_are_not_kept_cannot_be_asked_for(app, run):
    app.conf.dlq_search_values = 0
    done = run("list", "--value", "4711")
    assert done.exit_code != 0
    assert "dlq_search_values is 0" in done.stderr


def test_redacted_arguments_are_found_with_a_key(run, read, shop_app):
    shop_app.conf.dlq_search_redacted_key = "a key of mine"
    queue = DeadLetterQueue.of(shop_app)
    for name, secret in (("a", "hunter2"), ("b", "hunter3")):
        kwargs = queue.redactor.display({"password": secret})
        queue.store.letters.save([letter(name, args=[], kwargs=kwargs)])
    assert [row["task_id"] for row in read("list", "--arg", "password=hunter2")] == ["a"]
    assert run("discard", "--arg", "password=hunter2", "--why", "x", "--yes").exit_code == 0
    told = [run("audit"), run("show", "a"), run("list", "--state", "discarded")]
    assert not [one.stdout for one in told if "hunter" in one.stdout]


def test_redacted_arguments_need_a_key(run, store):
    found = run("list", "--arg", "password=hunter2")
    assert found.exit_code == 2
    assert "set dlq_search_redacted_key and restart the workers" in found.stderr
