import pytest
from support.auto_world import CHARGES, LEASE_S
from support.factories import attempt, letter

from celery_dlq import AutoRedrive, Limits, Timetable
from celery_dlq.model.auto_redrive import AutoMode, AutoRun, AutoState, actor_of


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
        AutoRedrive("others", where=CHARGES, mode="shadow", all=True),
    )


@pytest.fixture
def lease(store):
    return store.leases.take("auto.test", holder="a worker", seconds=LEASE_S)


def suspend(store, name, why):
    now = store.now()
    store.auto_redrives.set_state(name, AutoState.SUSPENDED, who=actor_of(name), why=why, now=now)


def test_an_app_without_automatic_redrives_is_told_how_to_have_some(run, read, queue):
    out = run("auto", "list").stdout
    assert "no automatic redrives. Next: set dlq_auto_redrive" in out
    assert "dlq help auto-redrive" in out
    assert read("auto", "list") == []


def test_they_are_listed_in_their_order(run, read, shop, store, three, lease):
    shop.auto_redrives.run(lease)
    first, second = read("auto", "list")
    assert (first["name"], first["mode"], first["state"], first["owner"]) == (
        "charges", "on", "active", "ann",
    )  # fmt: skip
    assert first["last_run_letters"] == 2
    assert first["last_look_at"] < first["next_look_at"]
    assert (second["name"], second["mode"], second["last_run_at"]) == ("others", "shadow", None)
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
    assert "It has chosen no letters yet." in run("auto", "show", "charges").stdout
    queue.auto_redrives.run(request.getfixturevalue("lease"))
    out = run("auto", "show", "charges").stdout
    for words in (
        "task=shop.charge", "15m after the failure", "2 times, each wait 2 times longer", "every 5m",
        "00:00-23:59", "Europe/Berlin", "below 50% successes of its last 20 redrives",
        "Next: see what it would send now: celery dlq auto run charges --dry-run",
    ):  # fmt: skip
        assert words in out
    found = read("auto", "show", "charges")
    assert found["limits"]["per_letter"] == 2
    assert found["where"] == {"task": "shop.charge"}
    [one] = found["runs"]
    assert (one["letters"], one["state"], one["mode"]) == (2, "planned", "on")


@pytest.mark.parametrize(
    "words", [("show",), ("run",), ("run", "--dry-run"), ("pause",), ("resume",), ("history",)]
)
def test_an_unknown_name_is_an_error_with_the_near_name(run, shop, store, words):
    result = run("auto", *words, "charge")
    assert result.exit_code == 1
    assert (
        "'charge' is not an automatic redrive of this app; did you mean 'charges'?" in result.stderr
    )
    assert store.auto_redrives.statuses() == {}


def test_a_dry_run_names_the_letters_and_changes_nothing(run, read, shop, store, three):
    store.letters.save([letter("fresh", attempt(minutes=55))])
    result = run("auto", "run", "charges", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("It would send 2 letters. Nothing was sent or changed.\n")
    found = read("auto", "run", "charges", "--dry-run")
    assert found["letters"] == ["0d3f1111-aaaa", "0d3f2222-bbbb"]
    assert (found["held"], found["not_now"], found["why_not"]) == ({}, [], None)
    assert store.auto_redrives.statuses() == {}
    assert store.auto_redrives.runs() == []
    assert store.operations.find() == []


def test_a_dry_run_says_why_letters_wait_and_why_nothing_is_sent(run, read, shop, three, lease):
    shop.pause_auto(who="ann", why="holidays")
    out = run("auto", "run", "charges", "--dry-run").stdout
    assert (
        "A worker would not do it now: all automatic redrives are paused by ann: holidays." in out
    )
    shop.resume_auto(who="ann")
    shop.auto_redrives.run(lease)
    found = read("auto", "run", "charges", "--dry-run")
    assert (found["letters"], found["why_not"]) == ([], "its last operation has not ended")
    assert (
        "It would send nothing: its last operation has not ended."
        in run("auto", "run", "charges", "--dry-run").stdout
    )


def test_a_dry_run_counts_the_letters_that_wait(run, autos, request):
    autos(AutoRedrive("charges", where=CHARGES, limits=Limits(share_of_group=0.5)))
    request.getfixturevalue("three")
    out = run("auto", "run", "charges", "--dry-run").stdout
    assert "It would send 1 letter." in out
    assert "its group has no more room in this run" in out


def test_run_lets_a_worker_look_at_once(run, shop, store, three, lease):
    shop.auto_redrives.run(lease)
    assert store.auto_redrives.statuses()["charges"].looked_at is not None
    result = run("auto", "run", "charges")
    assert result.stdout.startswith("A worker looks for the letters of charges at once.")
    assert store.auto_redrives.statuses()["charges"].looked_at is None


def test_run_is_refused_while_it_is_stopped(run, shop, store):
    shop.pause_auto("charges", who="ann")
    result = run("auto", "run", "charges")
    assert result.exit_code == 1
    assert "it is paused by ann; to resume: " in result.stderr
    assert "dlq auto resume charges" in result.stderr


def test_run_in_closed_hours_says_when(run, autos):
    autos(AutoRedrive("charges", where=CHARGES, when=Timetable(quiet=("00:00-23:59",))))
    assert "when its time comes (it is a quiet time" in run("auto", "run", "charges").stdout
    assert "--format needs --dry-run" in run("auto", "run", "charges", "--format", "json").stderr


def test_pause_says_what_happens_to_the_running_operation(run, shop, store, three, lease):
    shop.auto_redrives.run(lease)
    [running] = store.auto_redrives.unfinished("charges")
    out = run("auto", "pause", "charges", "--why", "a fix is on its way").stdout
    assert "Automatic redrive charges is paused now." in out
    assert f"Cancelled before the next batch: operation {running}." in out
    status = store.auto_redrives.statuses()["charges"]
    assert (status.state, status.why) == (AutoState.PAUSED, "a fix is on its way")
    assert "is paused already." in run("auto", "pause", "charges").stdout
    assert "a fix is on its way" in run("audit").stdout


def test_pause_without_a_name_pauses_all(run, read, shop):
    out = run("auto", "pause").stdout
    assert "All automatic redrives are paused now. No operation is running." in out
    assert [one["state"] for one in read("auto", "list")] == ["paused", "paused"]
    assert "All automatic redrives are active now." in run("auto", "resume").stdout
    assert [one["state"] for one in read("auto", "list")] == ["active", "active"]


def test_resume_names_those_that_stay_stopped(run, shop, store):
    suspend(store, "charges", "2 of its last 20 redrives succeeded")
    run("auto", "pause")
    result = run("auto", "resume")
    assert "charges does not run: it is suspended by auto:charges" in result.stderr
    assert "others" not in result.stderr
    assert "charges is active now." in run("auto", "resume", "charges").stdout
    assert "charges is not stopped by this name." in run("auto", "resume", "charges").stdout


def test_the_history_shows_outcomes_also_of_one_that_was_removed(
    run, read, shop, store, three, lease
):
    shop.auto_redrives.run(lease)
    [one] = read("auto", "history", "charges")
    assert (one["name"], one["letters"], one["counts"]["planned"]) == ("charges", 2, 2)
    assert read("auto", "history", "others") == []
    old = AutoRun(id="0ld", name="old", mode=AutoMode.SHADOW, at=store.now(), letters=1)
    assert store.auto_redrives.begin(lease, old, {"77e1": "aaaa000000000000"}, None)
    [removed] = read("auto", "history", "old")
    assert (removed["id"], removed["mode"], removed["state"]) == ("0ld", "shadow", None)
    assert len(read("auto", "history")) == 2
    assert len(read("auto", "history", "--limit", "1")) == 1
    assert "planned" in run("auto", "history").stdout


def test_held_letters_are_listed_and_shown_with_the_reason(run, read, shop, store, three, lease):
    held = "0d3f1111-aaaa"
    store.auto_redrives.hold(lease, "charges", {held: "it failed differently"}, store.now())
    assert [one["task_id"] for one in read("list", "--held")] == [held]
    assert len(read("list")) == 3
    assert read("show", held)["held"]["why"] == "it failed differently"
    assert read("show", "77e1")["held"] is None
    assert "Held: only a person redrives it" in run("show", held).stdout
    assert "Held" not in run("show", "77e1").stdout
    assert read("auto", "list")[0]["held"] == 1


def test_a_history_that_is_cut_off_says_so(run, shop, store, three, lease):
    shop.auto_redrives.run(lease)
    old = AutoRun(id="0ld", name="old", mode=AutoMode.SHADOW, at=store.now(), letters=1)
    assert store.auto_redrives.begin(lease, old, {"77e1": "aaaa000000000000"}, None)
    cut = run("auto", "history", "--limit", "1", "--format", "jsonl")
    assert len(cut.stdout.splitlines()) == 1
    assert cut.stderr == "Only the newest 1 are shown; for more, raise --limit.\n"
    whole = run("auto", "history", "--limit", "2", "--format", "jsonl")
    assert (len(whole.stdout.splitlines()), whole.stderr) == (2, "")
