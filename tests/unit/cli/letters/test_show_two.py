"""Two letters side by side."""

import json

import pytest
from support.factories import T0, letter


@pytest.fixture
def two(store, app):
    @app.task(name="shop.order", shared=False)
    def order(order_id, currency): ...

    frames = 'Traceback (most recent call last):\n  File "/srv/shop.py", line 3, in charge\n'
    store.letters.save(
        [
            letter(
                f"{place}-order", task="shop.order", args=[number, "EURO"], kwargs={},
                message=f"order {number}", traceback=f"{frames}ValueError: order {number}\n",
                first_failed_at=T0, last_failed_at=T0,
            )
            for place, number in (("a1", 4711), ("b1", 4712))
        ]
    )  # fmt: skip


def test_what_differs_comes_first_by_the_names_of_parameters(run, two):
    lines = run("show", "a1", "b1").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["order_id", "Message"]
    assert lines[1].split()[1:] == ["4711", "4712"]
    same = lines.index("The same in both")
    assert any(line.split() == ["currency", "EURO"] for line in lines[same:])
    assert "- ValueError: order 4711" in "\n".join(lines)
    assert "+ ValueError: order 4712" in "\n".join(lines)


def test_for_programs(run, two):
    found = json.loads(run("show", "a1", "b1", "--format", "json").stdout)
    assert found["task_ids"] == ["a1-order", "b1-order"]
    assert found["different"]["order_id"] == ["4711", "4712"]
    assert found["same"]["currency"] == "EURO"
    assert "+ ValueError: order 4712" in found["traceback"]


def test_a_letter_is_equal_to_itself(run, two):
    out = run("show", "a1", "a1-order").stdout
    assert "Their arguments and facts are the same." in out
    assert "Traceback" not in out


def test_an_unknown_letter_is_an_error(run, two):
    result = run("show", "a1", "c1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "c1" in result.stderr
