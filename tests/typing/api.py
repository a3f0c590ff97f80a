"""The public API as a typed project uses it. Never run: tests/test_wheel.py has mypy check it, strictly,
against the installed package."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from celery import Celery
from typing_extensions import assert_type

from celery_dlq import (
    Attempt,
    CeleryDLQError,
    Checking,
    Classifier,
    DeadLetter,
    DeadLetterQueue,
    Decision,
    DLQTask,
    Filter,
    Group,
    GroupFilter,
    GroupStatus,
    Guard,
    Mark,
    Operation,
    OperationState,
    Orders,
    Pacing,
    Reason,
    Repair,
    Rule,
    Run,
    Settings,
    State,
    Terminal,
    Transient,
    Verdict,
    decide,
)
from celery_dlq.hooks import Event, EventHook, EventKind, Log, Slack
from celery_dlq.model.audit import AuditHead
from celery_dlq.tickets import GitHubIssues, GitLabIssues, JiraIssues


class GatewayError(Exception):
    code: str


app = Celery("shop")
app.conf.dlq_rules = [
    Rule(GatewayError, "transient", when=lambda exc: getattr(exc, "code", "") == "BUSY"),
    Rule(("requests.Timeout", "shop.errors.*"), Verdict.TRANSIENT, name="network", retry_after=5),
    Rule([KeyError, ValueError], Verdict.TERMINAL),
    Rule("httpx.HTTPStatusError", "transient", status={500, 503}, max_attempts=9, retry_backoff=1),
    Rule("sqlalchemy.exc.DBAPIError", "transient", sqlstate=["40001"], matching="deadlock"),
]


class Charging(DLQTask):
    """A base class of a project's own."""

    abstract = True
    max_retries = 3
    retry_backoff = 0.5
    retry_jitter = False
    autoretry_for = (GatewayError,)
    throws = (LookupError,)
    dlq_tags = ("money",)
    dlq_rules = (Rule(TimeoutError, "transient"),)
    dlq_retry_window = 3_600.0

    def classify(self, exc: BaseException) -> Verdict | None:
        return Verdict.TERMINAL if isinstance(exc, GatewayError) and exc.code == "STOLEN" else None


@app.task(base=DLQTask, bind=True, max_retries=8)
def charge(self: DLQTask, order_id: int) -> str:
    assert_type(self.dlq, Run)
    assert_type(self.dlq.key, str)
    assert_type(self.dlq.redrive, int)
    assert_type(self.dlq.attempt, int)
    assert_type(self.dlq.first_failed_at, datetime | None)
    if order_id < 0:
        raise self.retry(countdown=1.5, max_retries=2)
    if order_id == 0:
        raise Terminal("order 0 is a test")
    if order_id == 1:
        raise Transient(KeyError("bank"), retry_after=timedelta(minutes=1))
    return f"charged {order_id}"


def judge() -> None:
    decision = decide(ConnectionError())
    assert_type(decision, Decision)
    assert_type(decision.verdict, Verdict)
    assert_type(decision.retry_after, float | None)
    own = Classifier.from_settings(Settings(max_attempts=3, transient=("shop.Busy",)))
    assert_type(own.with_rules(Rule(OSError, "terminal")).decide(KeyError()).rule, str)


def look(queue: DeadLetterQueue) -> list[str]:
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    wanted = Filter(task="charge", reason=Reason.EXHAUSTED, since=hour_ago)
    page = queue.store.letters.find(wanted, limit=10)
    assert_type(page.letters, tuple[DeadLetter, ...])
    assert_type(page.next, str | None)
    assert_type(queue.store.counts.letters(Filter(states=frozenset({State.DISCARDED}))), int)
    assert_type(queue.store.monitoring.stats(hour_ago).by_state, Mapping[State, int])
    letter = queue.store.letters.get("0d3f")
    if letter is None:
        return []
    assert_type(letter.attempts, tuple[Attempt, ...])
    assert_type(letter.envelope.body, bytes)
    return [f"{attempt.number}: {attempt.message} ({attempt.rule})" for attempt in letter.attempts]


def redrive(queue: DeadLetterQueue) -> int:
    wanted = Filter(group="9c1e")
    orders = Orders(
        pacing=Pacing(limit=100, rate=50, canary=5),
        guard=Guard(ratio=0.1),
        checking=Checking(max_redrives=None),
        repair=Repair(to_queue="slow"),
    )
    if queue.redrives.plan(wanted, orders).sendable == 0:
        return 0
    try:
        operation = queue.redrives.start(
            wanted,
            who="deploy",
            orders=orders,
            on_progress=lambda progress: print(progress.counts.out, progress.waits_for),
        )
    except CeleryDLQError as error:
        raise SystemExit(str(error)) from error
    assert_type(operation, Operation)
    if operation.state is OperationState.PAUSED:
        operation = queue.redrives.resume(operation.id, who="deploy", detach=True)
    assert_type(queue.redrives.find(states={OperationState.RUNNING}), list[Operation])
    return operation.counts.succeeded


def triage(queue: DeadLetterQueue) -> None:
    regressed = GroupFilter(marks=frozenset({Mark.REGRESSED}))
    assert_type(queue.groups.find(Filter(task="charge"), which=regressed, limit=5), list[Group])
    group = queue.groups.resolve("9c1e0000deadbeef", who="deploy", release="1.4.3")
    assert_type(group.status, GroupStatus)
    assert_type(queue.store.letters.save([]).regressed_groups, tuple[Group, ...])
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    queue.groups.ignore(group.fingerprint, who="ann", until=tomorrow, count=50)


queue = DeadLetterQueue.of(app)


@queue.on_dead_letter
def count(letter: DeadLetter) -> None:
    print(letter.task)


@queue.on_operation_aborted
def page(operation: Operation) -> None:
    print(operation.cause)


@queue.on_audit
def keep(head: AuditHead) -> None:
    print(str(head), head.at)


ticketing = queue.handler(where=Filter(task="charge"), once_per_group=True, name="github")
assert_type(ticketing(GitHubIssues("acme/shop", token="t", labels=("a",))), GitHubIssues)
queue.handler(all=True, once_per_group=True, name="gitlab")(GitLabIssues(17, token="t"))
queue.handler(all=True, once_per_group=True, name="jira")(
    JiraIssues("SHOP", url="https://jira.acme.example", token="t")
)


class Keep(EventHook):
    def __call__(self, event: Event) -> None:
        print(event.id, event.kind is EventKind.RESOLVED)


assert_type(queue.on_resolved(Keep()), Keep)
app.conf.dlq_hooks = {
    "new_group": [Slack("https://hooks.slack.com/x", flower="https://flower"), Log()]
}


def mistakes() -> None:
    """Each line is one that a type checker has to refuse."""
    Filter(taks="charge")  # type: ignore[call-arg]
    Filter(reason="exhausted")  # type: ignore[arg-type]
    Rule(KeyError, Verdict.TERMINAL, status="503")  # type: ignore[arg-type]
    decide("KeyError")  # type: ignore[arg-type]
    Settings(max_attempts="3")  # type: ignore[arg-type]
    DeadLetterQueue.of(app).redrives.start(Filter())  # type: ignore[call-arg]
    DeadLetterQueue.of(app).on_operation_aborted(count)  # type: ignore[type-var]
    decide(KeyError()).verdict = Verdict.TRANSIENT  # type: ignore[misc]
    DLQTask().dlq.redrive = 1  # type: ignore[misc]


judge()
look(DeadLetterQueue(app))
redrive(DeadLetterQueue.of(app))
