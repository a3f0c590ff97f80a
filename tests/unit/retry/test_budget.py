import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock

from celery_dlq.retry import Exhausted, RetryBudget
from celery_dlq.retry.policy import WINDOW_S


@pytest.fixture
def clock():
    return Clock(1_000.0)


def run(budget, times):
    for _ in range(times):
        budget.ran()


def granted(budget, asked):
    return sum(budget.spend() is None for _ in range(asked))


def test_retries_are_a_share_of_the_first_runs(clock):
    budget = RetryBudget(0.2, 3, clock)
    run(budget, 100)
    assert granted(budget, 50) == 20


def test_the_floor_is_granted_without_any_run(clock):
    budget = RetryBudget(0.2, 3, clock)
    assert granted(budget, 5) == 3


def test_the_floor_is_a_floor_and_not_an_extra(clock):
    budget = RetryBudget(0.2, 3, clock)
    run(budget, 15)
    assert granted(budget, 5) == 3
    run(budget, 5)
    assert granted(budget, 5) == 1


def test_a_share_and_floor_of_nothing_grant_nothing(clock):
    budget = RetryBudget(0.0, 0, clock)
    run(budget, 1_000)
    assert granted(budget, 1) == 0


def test_the_refusal_gives_the_figures(clock):
    budget = RetryBudget(0.2, 1, clock)
    run(budget, 10)
    assert granted(budget, 2) == 2
    assert budget.spend() == Exhausted(
        "over the retry budget: 2 retries for 10 first runs in 10 s; 20% are allowed, or 1 if that is more"
    )


def test_spent_retries_come_back_only_with_time(clock):
    budget = RetryBudget(0.2, 3, clock)
    assert granted(budget, 9) == 3
    clock.now += WINDOW_S - 1
    assert granted(budget, 9) == 0
    clock.now += 1
    assert granted(budget, 9) == 3


def test_runs_of_long_ago_grant_nothing(clock):
    budget = RetryBudget(0.5, 0, clock)
    run(budget, 100)
    clock.now += WINDOW_S - 1
    assert granted(budget, 10) == 10
    clock.now += 1
    assert granted(budget, 10) == 0


def test_nothing_is_left_after_a_long_rest(clock):
    budget = RetryBudget(0.5, 0, clock)
    for _ in range(WINDOW_S):
        run(budget, 10)
        clock.now += 1
    clock.now += 86_400.5
    assert granted(budget, 10) == 0


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.floats(0.0, 25.0)),
        st.tuples(st.just("run"), st.integers(0, 60)),
        st.tuples(st.just("ask"), st.integers(1, 30)),
    ),
    max_size=60,
)


@given(EVENTS, st.floats(0.0, 1.0), st.integers(0, 8))
def test_no_more_is_granted_than_share_and_floor_allow(events, share, floor):
    clock = Clock(1_000.0)
    budget = RetryBudget(share, floor, clock)
    runs, grants = {}, {}
    for kind, amount in events:
        second = int(clock.now)
        if kind == "pass":
            clock.now += amount
        elif kind == "run":
            run(budget, amount)
            runs[second] = runs.get(second, 0) + amount
        else:
            grants[second] = grants.get(second, 0) + granted(budget, amount)
    for last in (second for second, count in grants.items() if count):
        window = range(last - WINDOW_S + 1, last + 1)
        of_window = [sum(counts.get(second, 0) for second in window) for counts in (runs, grants)]
        assert of_window[1] <= max(floor, share * of_window[0])
    # Windows that follow each other share no run; so it holds in all, with a floor for each.
    windows = 1 + (int(clock.now) - 1_000) // WINDOW_S
    assert sum(grants.values()) <= share * sum(runs.values()) + floor * windows


@given(st.integers(0, 500), st.floats(0.0, 1.0), st.integers(0, 8))
def test_all_that_share_and_floor_allow_is_granted(runs, share, floor):
    budget = RetryBudget(share, floor, Clock(1_000.0))
    run(budget, runs)
    assert granted(budget, 600) == int(max(floor, share * runs))


def test_threads_share_one_budget_and_overdraw_nothing(clock):
    budget = RetryBudget(0.5, 0, clock)
    spent, start = [], threading.Barrier(8)

    def work():
        start.wait()
        run(budget, 500)
        start.wait()
        spent.append(granted(budget, 500))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sum(spent) == 8 * 500 // 2
