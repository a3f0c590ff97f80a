from datetime import timedelta

from support.factories import T0

from celery_dlq.metrics.families import Sample, by_age, by_size


def sample(name: str, value: float, age: int = 0) -> Sample:
    return Sample((name, "q"), value, T0 - timedelta(minutes=age))


def test_few_sets_keep_their_labels_and_equal_ones_are_added_up():
    samples = [sample("a", 1), sample("b", 2), sample("a", 3)]
    assert by_size(samples) == by_age(samples) == {("a", "q"): 4, ("b", "q"): 2}
    assert by_size([]) == {}


def test_the_largest_gauges_keep_their_labels():
    samples = [sample("a", 1), sample("b", 9), sample("c", 2)]
    assert by_size(samples, most=1) == {("b", "q"): 9, ("other", "other"): 3}


def test_the_oldest_counters_keep_their_labels_so_that_none_falls():
    old, older, new = sample("old", 1, 10), sample("older", 2, 20), sample("new", 50)
    before = by_age([old, older], most=1)
    after = by_age([new, old, older], most=1)
    assert before == {("older", "q"): 2, ("other", "other"): 1}
    assert after == {("older", "q"): 2, ("other", "other"): 51}


def test_the_age_of_a_set_is_that_of_its_first_sample():
    samples = [sample("a", 1, 5), sample("b", 1, 7), sample("a", 1, 9)]
    assert by_age(samples, most=1)[("a", "q")] == 2


def test_a_task_that_has_the_name_of_the_rest_is_added_to_it():
    samples = [
        Sample(("other", "other"), 9, T0),
        Sample(("a", "q"), 2, T0),
        Sample(("b", "q"), 1, T0),
    ]
    assert by_size(samples, most=2) == {("other", "other"): 10, ("a", "q"): 2}


def test_labels_are_what_utf8_can_say_and_never_empty():
    found = by_size([Sample(("", "a\ud800\x00b"), 1, T0)])
    [(task, queue)] = found
    assert task == "none"
    assert queue.encode() == rb"a\ud800\u0000b"
