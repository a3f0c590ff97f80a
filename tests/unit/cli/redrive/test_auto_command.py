import pytest
from support.auto_world import CHARGES, LEASE_S, candidate
from support.factories import attempt, letter, operation

from celery_dlq import AutoRedrive, Filter, Limits, Timetable
from celery_dlq.model.automation import AutoMode, AutoState, actor_of


@pytest.fixture
def autos(app, queue):
    """Gives the app these automatic redrives; by default two, the second in shadow mode."""

    def given(*made):
        app.conf.dlq_auto_redrive = made
        return queue

    return given


@pytest.fixture
def shop(autos):
    return autos(
        AutoRedrive("charges", where=CHARGES, owner="ann"),
        AutoRedrive("others", where=CHARGES, mode="shadow"),
    )


@pytest.fixture
def lease(store):
    return store.leases.take("auto.test", holder="a worker", seconds=LEASE_S)


def shadow(store, lease):
    """Let an automatic redrive in shadow mode, which the settings do not have, choose a letter."""
    made = operation("0ld", created_at=store.now())
    letters = [candidate("77e1", "aaaa000000000000")]
    assert store.automations.begin(lease, "old", letters, made, mode=AutoMode.SHADOW)


def suspend(store, name, why):
    now = store.now()
    store.automations.set_state(name, AutoState.SUSPENDED, who=actor_of(name), why=why, now=now)


def test_an_app_without_automatic_redrives_is_told_how_to_have_some(run, read, queue):
    out = run("auto", "list").stdout
    assert "no automatic redrives and no handlers. Next: set dlq_auto_redrive" in out
    assert "dlq help auto-redrive" in out
    assert read("auto", "list") == []


def test_they_are_listed_in_their_order(run, read, shop, store, three, lease):
    shop.automations.run(lease, lambda: lease)
    first, second = read("auto", "list")
    assert (first["name"], first["mode"], first["state"], first["owner"]) == (
        "charges", "on", "active", "ann",
    )  # fmt: skip
    assert (first["kind"], first["letters"]["done"]) == ("redrive", 2)
    assert first["last_look_at"] < first["next_look_at"]
    assert (second["name"], second["mode"], second["letters"]["shadow"]) == ("others", "shadow", 0)
    lines = run("auto", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "charges", "others"]


def test_a_stopped_one_is_listed_with_the_reason_and_without_a_next_look(run, read, shop, store):
    suspend(store, "charges", "password=hunter2 is wrong")
    result = run("auto", "list").stdout
    assert "charges: it is suspended by auto:charges" in result
    assert "hunter2" not in result
    first, second = read("auto", "list")
    assert (first["state"], first["next_look_at"]) == ("suspended", None)
    assert (second["state"], second["stopped"]) == ("active", None)


def test_one_is_shown_in_words_with_its_runs(run, read, autos, request):
    when = Timetable(hours="00:00-23:59", timezone="Europe/Berlin")
    queue = autos(AutoRedrive("charges", where=CHARGES, when=when, limits=Limits(per_letter=2)))
    request.getfixturevalue("three")
    assert "It has had no letters yet." in run("auto", "show", "charges").stdout
    lease = request.getfixturevalue("lease")
    queue.automations.run(lease, lambda: lease)
    out = run("auto", "show", "charges").stdout
    for words in (
        "task=shop.charge", "15m after the failure", "2 times, each wait 2 times longer", "every 5m",
        "00:00-23:59", "Europe/Berlin", "below 50% successes of its last 20 redrives",
        "Next: see what it would do now: celery dlq auto try charges",
    ):  # fmt: skip
        assert words in out
    found = read("auto", "show", "charges")
    assert found["limits"]["per_letter"] == 2
    assert found["where"] == {"task": "shop.charge"}
    assert [(one["state"], one["verdict"]) for one in found["latest"]] == [("done", "redrive")] * 2


@pytest.mark.parametrize(
    "words", [("show",), ("run",), ("try",), ("pause",), ("resume",), ("history",)]
)
def test_an_unknown_name_is_an_error_with_the_near_name(run, shop, store, words):
    result = run("auto", *words, "charge")
    assert result.exit_code == 1
    assert "'charge' is not an automation of this app; did you mean 'charges'?" in result.stderr
    assert store.automations.statuses() == {}


def test_a_dry_run_names_the_letters_and_changes_nothing(run, read, shop, store, three):
    store.letters.save([letter("fresh", attempt(minutes=55))])
    result = run("auto", "try", "charges")
    assert result.exit_code == 0
    assert result.stdout.startswith("It would send 2 letters. Nothing was sent or changed.\n")
    found = read("auto", "try", "charges")
    assert found["letters"] == ["0d3f1111-aaaa", "0d3f2222-bbbb"]
    assert (found["held"], found["not_now"], found["why_not"]) == ({}, [], None)
    assert store.automations.statuses() == {}
    assert store.automations.find().rows == ()
    assert store.operations.find() == []


def test_a_dry_run_says_why_letters_wait_and_why_nothing_is_sent(run, read, shop, three, lease):
    shop.pause_auto(who="ann", why="holidays")
    out = run("auto", "try", "charges").stdout
    assert "A worker would not do it now: all automations are paused by ann: holidays." in out
    shop.resume_auto(who="ann")
    shop.automations.run(lease, lambda: lease)
    found = read("auto", "try", "charges")
    assert (found["letters"], found["why_not"]) == ([], "its last operation has not ended")
    assert (
        "It would send nothing: its last operation has not ended."
        in run("auto", "try", "charges").stdout
    )


def test_a_dry_run_counts_the_letters_that_wait(run, autos, request):
    autos(AutoRedrive("charges", where=Filter(), all=True))
    request.getfixturevalue("three")
    out = run("auto", "try", "charges").stdout
    assert "It would send 2 letters." in out
    assert "WAIT BECAUSE" in out


def test_run_lets_a_worker_look_at_once(run, shop, store, three, lease):
    shop.automations.run(lease, lambda: lease)
    assert store.automations.statuses()["charges"].looked_at is not None
    result = run("auto", "run", "charges")
    assert result.stdout.startswith("A worker looks for the letters of charges at once.")
    assert store.automations.statuses()["charges"].looked_at is None


def test_run_is_refused_while_it_is_stopped(run, shop, store):
    shop.pause_auto("charges", who="ann")
    result = run("auto", "run", "charges")
    assert result.exit_code == 1
    assert "it is paused by ann; to resume: " in result.stderr
    assert "dlq auto resume charges" in result.stderr


def test_run_in_closed_hours_says_when(run, autos):
    autos(AutoRedrive("charges", where=CHARGES, when=Timetable(quiet=("00:00-23:59",))))
    assert "when its time comes (it is a quiet time" in run("auto", "run", "charges").stdout


def test_pause_says_what_happens_to_the_running_operation(run, shop, store, three, lease):
    shop.automations.run(lease, lambda: lease)
    [running] = store.automations.unfinished("charges")
    out = run("auto", "pause", "charges", "--why", "a fix is on its way").stdout
    assert "charges is paused now." in out
    assert f"Cancelled before the next batch: operation {running}." in out
    status = store.automations.statuses()["charges"]
    assert (status.state, status.why) == (AutoState.PAUSED, "a fix is on its way")
    assert "is paused already." in run("auto", "pause", "charges").stdout
    assert "a fix is on its way" in run("audit").stdout


def test_pause_without_a_name_pauses_all(run, read, shop):
    out = run("auto", "pause").stdout
    assert "All automations are paused now. No operation is running." in out
    assert [one["state"] for one in read("auto", "list")] == ["paused", "paused"]
    assert "All automations are active now." in run("auto", "resume").stdout
    assert [one["state"] for one in read("auto", "list")] == ["active", "active"]


def test_resume_names_those_that_stay_stopped(run, shop, store):
    suspend(store, "charges", "2 of its last 20 redrives succeeded")
    run("auto", "pause")
    result = run("auto", "resume")
    assert "charges does not run: it is suspended by auto:charges" in result.stderr
    assert "others" not in result.stderr
    assert "charges is active now." in run("auto", "resume", "charges").stdout
    assert "charges is not stopped by this name." in run("auto", "resume", "charges").stdout


def test_the_history_shows_letters_also_of_one_that_was_removed(
    run, read, shop, store, three, lease
):
    shop.automations.run(lease, lambda: lease)
    [one, other] = read("auto", "history", "charges")
    assert (one["name"], one["state"], one["verdict"]) == ("charges", "done", "redrive")
    assert one["operation"] == other["operation"] != ""
    shadow(store, lease)
    [removed] = read("auto", "history", "old")
    assert (removed["version"], removed["state"], removed["operation"]) == ("0ld", "shadow", "")
    assert len(read("auto", "history", "--limit", "1")) == 1
    assert "redrive" in run("auto", "history").stdout


def test_held_letters_are_listed_and_shown_with_the_reason(run, read, shop, store, three, lease):
    held = "0d3f1111-aaaa"
    store.automations.hold(lease, "charges", {held: "it failed differently"}, store.now())
    assert [one["task_id"] for one in read("list", "--held")] == [held]
    assert len(read("list")) == 3
    assert read("show", held)["held"]["why"] == "it failed differently"
    assert read("show", "77e1")["held"] is None
    assert "Held: only a person redrives it" in run("show", held).stdout
    assert "Held" not in run("show", "77e1").stdout
    assert read("auto", "list")[0]["held"] == 1
