import pytest

from celery_dlq import DLQTask, Rule


def nothing():
    return None


@pytest.fixture
def mail(app):
    rules = (Rule("shop_bank.Busy", "transient", max_attempts=9, retry_backoff=2, name="busy"),)
    return app.task(
        name="shop.mail", base=DLQTask, shared=False, max_retries=3, retry_backoff=2,
        retry_jitter=False, dlq_rules=rules,
    )(nothing)  # fmt: skip


def test_the_schedule_of_the_defaults(read, run, app):
    found = read("explain", "shop.charge")
    assert (found["task"], found["max_attempts"], found["rules"]) == ("shop.charge", 9, [])
    assert [item["wait_high_s"] for item in found["attempts"]] == [
        0, 2, 4, 8, 16, 32, 64, 128, 256,
    ]  # fmt: skip
    assert found["attempts"][-1]["start_high_s"] == 510
    parked = ["(parked)" in " ".join(item["notes"]) for item in found["attempts"]]
    assert parked == [False] * 6 + [True] * 3
    out = run("explain", "charge").stdout
    assert "0s to 16s" in out
    assert "If attempt 9 has a transient failure, too, the task becomes a letter" in out


def test_the_default_schedule_in_an_outage(read, run, app):
    outage = read("explain", "shop.charge")["outage"]
    assert outage["exhausts_half_s"] == pytest.approx(255, rel=0.01)
    assert outage["exhausts_all_s"] == 510.0
    out = " ".join(run("explain", "charge").stdout.split())
    assert "An outage of 78s exhausts 1 % of the tasks" in out
    assert "one of 4m half of them; one of 8m all." in out
    assert "set dlq_breaker_failures" in out


@pytest.mark.parametrize(("base", "said"), [
    (0.0004, "An outage of 0.016s exhausts 1 %"),
    (7 / 3, "0s to 2.33s"),
    (7 / 3, "0s to 16.3s"),
    (12.5, "0s to 12.5s"),
])  # fmt: skip
def test_times_have_no_more_digits_than_they_are_exact(read, run, app, base, said):
    app.task(name="shop.other", base=DLQTask, shared=False, retry_backoff=base)(nothing)
    assert said in " ".join(run("explain", "other").stdout.split())
    outage = read("explain", "other")["outage"]
    assert all(seconds == round(seconds, 3) for seconds in outage.values())


@pytest.mark.parametrize(("options", "said"), [
    ({"dlq_breaker_failures": 20}, "After 20 transient failures within 1m the circuit opens"),
    ({"max_retries": 0}, "The first transient failure exhausts a task"),
    ({"retry_jitter": False}, "An outage of 8m exhausts all tasks that fail when it begins."),
    ({"max_retries": None}, "An outage of 1d exhausts all"),
    ({"max_retries": 30}, "exhausts all tasks that fail when it begins."),
])  # fmt: skip
def test_other_schedules_in_an_outage(run, app, options, said):
    app.task(name="shop.other", base=DLQTask, shared=False, **options)(nothing)
    assert said in " ".join(run("explain", "other").stdout.split())


def test_a_tasks_own_options_and_rules(read, run, mail):
    found = read("explain", "mail")
    assert [item["start_low_s"] for item in found["attempts"]] == [0, 2, 6, 14]
    assert found["rules"] == [
        {
            "rule": "busy", "max_attempts": 9, "retry_backoff_s": 2.0,
            "retry_backoff_max_s": None, "retry_after_s": None,
        }
    ]  # fmt: skip
    out = run("explain", "mail").stdout
    assert "Rules with a schedule of their own" in out
    assert "from 2s, doubling up to 5m" in out


def test_the_window_and_the_broker_limit_the_schedule(read, run, app):
    # Half of the visibility timeout is what a wait may last there.
    app.conf.update(
        broker_url="redis://localhost:1", broker_transport_options={"visibility_timeout": 120}
    )

    @app.task(
        name="shop.slow", base=DLQTask, shared=False, default_retry_delay=70, dlq_retry_window=150,
        max_retries=None,
    )  # fmt: skip
    def slow():
        return None

    attempts = read("explain", "slow")["attempts"]
    assert [item["number"] for item in attempts] == [1, 2, 3]
    assert ["waits in the store (parked)" in " ".join(item["notes"]) for item in attempts] == [
        False,
        True,
        True,
    ]
    assert "until the retry window of 2m" in run("explain", "slow").stdout


def test_jitter_that_may_pass_the_window_is_noted(read, app):
    @app.task(name="shop.late", base=DLQTask, shared=False, retry_backoff=9, dlq_retry_window=10)
    def late():
        return None

    notes = [item["notes"] for item in read("explain", "late")["attempts"]]
    assert notes[:2] == [[], []]
    assert "after the retry window" in notes[2][0]


def test_csv_has_a_row_for_each_attempt(run, app):
    assert len(run("explain", "charge", "--format", "csv").stdout.splitlines()) == 10


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chrage", "did you mean"),
        ("shop.mailing", "'shop.mailing' is not an exception class that can be imported here"),
        ("celery.backend_cleanup", "does not use DLQTask"),
    ],
)
def test_an_unknown_task_is_an_error(run, app, name, said):
    result = run("explain", name)
    assert result.exit_code == 1
    assert said in result.stderr


def test_an_ambiguous_last_part_is_an_error(run, app):
    app.task(name="other.charge", base=DLQTask, shared=False)(nothing)
    result = run("explain", "charge")
    assert result.exit_code == 1
    assert "shop.charge" in result.stderr
    assert "other.charge" in result.stderr
