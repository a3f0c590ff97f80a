"""Which letters ``dlq redrive`` takes: by id, filter, group or operation; and what it refuses."""

from datetime import timedelta

from support.factories import T0, attempt, letter
from support.stores.losses import lost_letter

from celery_dlq.model.states import State


def test_ids_are_completed_and_deduplicated(run, orders, fake):
    run("redrive", "a", "a1", "b2", "--yes")
    assert fake.asked[0][0].ids == ("a1", "b2")


def test_an_unknown_id_stops_the_whole_redrive(run, orders, fake):
    result = run("redrive", "a1", "zzz", "--yes")
    assert result.exit_code == 1
    assert "begins with 'zzz'" in result.stderr
    assert fake.asked == []


def test_an_ambiguous_group_sends_nothing(run, store, fake):
    store.letters.save([letter("a", fingerprint="9c1e1"), letter("b", fingerprint="9c1e2")])
    result = run("redrive", "--group", "9c1e", "--yes")
    assert result.exit_code == 1
    assert "More than one group begins with '9c1e': 9c1e1, 9c1e2" in result.stderr
    assert run("redrive", "--group", "9c1e1", "--yes").exit_code == 0
    assert len(fake.asked) == 1


def test_an_unknown_group_is_an_error_that_names_the_next_step(run, orders, fake):
    result = run("redrive", "--group", "typo", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No group has a fingerprint that begins with 'typo'" in result.stderr
    assert "dlq groups" in result.stderr
    assert fake.asked == []


def test_a_group_whose_letters_are_all_closed_is_known(run, store, fake):
    store.letters.save([letter("a", fingerprint="9c1e1")])
    run("discard", "a", "--why", "known")
    result = run("redrive", "--group", "9c1e1", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")


def test_nothing_matches_a_filter(run, orders, fake):
    result = run("redrive", "--task", "charge", "--until", "1970-01-02")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")
    assert fake.asked == []


def test_a_closed_letter_is_named_and_the_others_are_sent(run, orders, store, fake):
    run("discard", "b1", "--why", "known")
    result = run("redrive", "a1", "b1", "--yes")
    assert result.exit_code == 4
    assert (
        "b1 is discarded and left alone. Next: nothing, it is discarded; to reopen it: "
        "celery dlq discard --undo b1" in result.stderr
    )
    assert len(fake.asked) == 1
    result = run("redrive", "b1")
    assert result.exit_code == 1
    assert "Nothing was sent" in result.stderr
    assert len(fake.asked) == 1


def test_ids_that_do_not_pass_the_filters_are_a_failure(run, orders, fake):
    result = run("redrive", "a1", "--queue", "other")
    assert result.exit_code == 1
    assert "Nothing was sent" in result.stderr


def test_redriven_letters_are_taken_on_request(run, orders, store):
    assert run("redrive", "a1").exit_code == 0
    assert run("redrive", "a1").exit_code == 1
    result = run("redrive", "a1", "--state", "redriven")
    assert result.exit_code == 0
    assert store.letters.get("a1").redrive_count == 2


def test_a_dry_run_with_a_limit_tries_the_letters_that_are_sent(run, orders, store):
    run("redrive", "a1")
    taken = ("redrive", "--state", "dead", "--state", "redriven", "--limit", "1")
    changed = ("--set", "kwargs.currency=USD")
    tried = run(*taken, *changed, "--dry-run").stdout
    before = {name: store.letters.get(name).redrive_count for name in orders}
    assert run(*taken, *changed, "--yes").exit_code == 0
    [sent] = [name for name in orders if store.letters.get(name).redrive_count > before[name]]
    assert [name for name in orders if f"Changed in {name}" in tried] == [sent]


def test_what_is_sent_again_while_its_outcome_is_awaited_may_run_twice(run, orders):
    said = "sent already, their outcome is awaited; sent again, they may run twice."
    assert said not in run("redrive", "--all", "--yes").stdout
    result = run("redrive", "--state", "redriven", "--dry-run")
    assert f"3 {said}" in " ".join(result.stdout.split())
    result = run("redrive", "--state", "redriven", "--yes")
    assert f"3 {said}" in " ".join(result.stdout.split())
    result = run("redrive", "a1", "--state", "redriven")
    assert f"Note: 1 {said}" in result.stderr


def test_the_notes_of_the_plan_are_said_about_a_single_letter_too(run, orders, app):
    app.tasks["shop.charge"].__header__ = lambda *args, **kwargs: None
    app.tasks["shop.charge"].run = lambda order_id: None
    result = run("redrive", "a1")
    assert result.exit_code == 0, result.stderr
    assert "Note: 1 may fail: the run() of shop.charge takes other arguments (" in result.stderr


def test_only_the_letters_of_an_operation_are_sent_again(run, orders, store):
    run("redrive", "a1")
    [first] = store.operations.find()
    run("redrive", "b1", "b2", "--yes")
    result = run("redrive", "--state", "redriven", "--operation", first.id[:6])
    assert result.exit_code == 0, result.stderr
    assert [store.letters.get(name).redrive_count for name in orders] == [2, 1, 1]


def test_an_unknown_operation_sends_nothing(run, orders, fake):
    for given, status in (("zz", 1), ("", 2)):
        assert run("redrive", "--operation", given, "--yes").exit_code == status
    assert fake.asked == []


def test_letters_claimed_by_others_are_not_a_failure(run, orders, store):
    run("redrive", "--all", "--yes")
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 0
    assert "Nothing was sent. 3 claimed or redriven already" in result.stderr


def test_the_plan_includes_letters_of_a_killed_redrive(run, orders, held):
    held(3, until=T0 + timedelta(minutes=1))
    assert "Sent 3 of 3 dead letters: 3 awaited." in run("redrive", "--all", "--yes").stdout


def test_an_unregistered_task_is_reported(run, store):
    store.letters.save([letter("m1", task="shop.mail\x1b[2J")])
    result = run("redrive", "m1")
    assert result.exit_code == 1
    assert "Not sent: m1: task shop.mail\\x1b[2J is not registered in this app" in result.stderr
    assert "Nothing was sent." in result.stderr


def test_a_letter_that_fails_while_it_asks_is_not_sent(run, orders, store, while_asked):
    while_asked(lambda: store.letters.save([letter("late", attempt(minutes=61))]))
    result = run("redrive", "--all")
    assert result.exit_code == 0, result.stderr
    assert store.letters.get("late").state is State.DEAD
    assert {store.letters.get(name).state for name in orders} == {State.REDRIVEN}


def test_a_group_of_letters_that_are_sent_only_by_name_is_a_failure(run, store, fake):
    store.letters.save([lost_letter("a1", T0), lost_letter("b1", T0)])
    result = run("redrive", "--group", "1057", "--yes")
    assert result.exit_code == 1
    assert "Nothing was sent. 2 were running when their worker was killed" in result.stderr
    assert "they are sent only by their ids or with --reason lost." in result.stderr
    assert fake.asked == []


def test_letters_sent_already_beside_one_that_is_sent_only_by_name_are_a_failure(
    run, orders, store
):
    run("redrive", "--all", "--yes")
    store.letters.save([lost_letter("c1", T0)])
    result = run("redrive", "--all", "--yes")
    assert result.exit_code == 1
    assert "Nothing was sent." in result.stderr
    assert store.letters.get("c1").state is State.DEAD


def test_a_time_in_the_future_matches_nothing(run, orders, fake):
    result = run("redrive", "--since", "2099-01-01", "--yes")
    assert (result.exit_code, result.stdout) == (0, "No dead letters match.\n")
