"""The schedule of harms, and the page that lists them."""

from pathlib import Path
from random import Random

from chaos.harms import FULL_RUN_S, HARMS, schedule
from chaos.kinds import KINDS

from celery_dlq.model.states import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "kill_test.md").read_text()


def test_every_harm_is_done_in_the_shortest_run():
    assert {harm.name for _, harm in schedule(10.0, Random(1))} == {harm.name for harm in HARMS}


def test_a_full_run_does_each_as_often_as_it_says():
    names = [harm.name for _, harm in schedule(FULL_RUN_S, Random(1))]
    assert {harm.name: names.count(harm.name) for harm in HARMS} == {
        harm.name: harm.times for harm in HARMS
    }


def test_harms_come_in_order_and_inside_the_run():
    due = [second for second, _ in schedule(100.0, Random(1))]
    assert due == sorted(due)
    assert min(due) >= 0
    assert max(due) <= 100.0


def test_a_seed_makes_the_schedule():
    assert schedule(60.0, Random(7)) == schedule(60.0, Random(7))
    assert schedule(60.0, Random(7)) != schedule(60.0, Random(8))


def test_the_page_has_each_harm():
    for harm in HARMS:
        assert f"| `{harm.name}` | {harm.times} | {harm.what} |" in PAGE


def test_the_page_has_each_kind():
    for kind in KINDS.values():
        letter = isinstance(kind.end, Reason)
        end = f"letter, `{kind.end.value}`" if letter else kind.end
        row = f"| `{kind.name}` | {kind.share * 100:.3g} % | {end} | {kind.meaning} |"
        assert row in PAGE, row
