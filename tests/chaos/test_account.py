"""The kill test's account finds every wrong end."""

from dataclasses import replace

import pytest
from chaos.account import Case, complaint, last_resort
from chaos.kinds import KINDS, mix
from chaos.ledger import FINISHED, IGNORED, STARTED, Ledger, Row
from chaos.producer import Sent
from chaos.redis_log import Undone, undone
from support.factories import T0, letter

from celery_dlq.model.letter import Explanation
from celery_dlq.model.states import Reason, State, Verdict
from celery_dlq.spool.segment import encode

DELIVERIES = 3
UNSENT = Explanation(
    verdict=Verdict.TRANSIENT, rule="r", evidence="the retry could not be published: refused"
)
THIRD = Explanation(
    verdict=Verdict.TERMINAL,
    rule="r",
    evidence="delivery 2 started 12:00 on a: died; delivery 3 started 12:01 on b: died",
)


def case(kind, *whats, reason=None, tries=1, redelivered=False, at=0.0, from_log=False, **changes):
    rows = [Row("t", what, 1, redelivered, 4711, at) for what in whats]
    found = letter("t", reason=reason, **changes) if reason else None
    return Case(Sent("t", KINDS[kind], 0.0, tries), rows, found, from_log=from_log)


#: Of a task whose letter was in a log only, and which was delivered again.
LOGGED = {
    "reason": Reason.REJECTED, "explanation": UNSENT, "redelivered": True, "from_log": True,
}  # fmt: skip
#: After the letter's last failure.
LATER = T0.timestamp() + 60


RIGHT = {
    "done": case("quick", STARTED, FINISHED),
    "done again after a redelivery": case(
        "quick", STARTED, FINISHED, STARTED, FINISHED, redelivered=True
    ),
    "done twice as it was sent twice": case("quick", FINISHED, FINISHED, tries=2),
    "terminal": case("terminal", STARTED, reason=Reason.TERMINAL),
    "ignored": case("ignores", STARTED, IGNORED),
    "expired": case("expires"),
    "done, its letter resolved": case(
        "recovers", FINISHED, reason=Reason.REJECTED, state=State.RESOLVED
    ),
    "done, its result not stored": case("quick", FINISHED, reason=Reason.UNSTORED),
    "done twice, as a broker that failed over did not know": replace(
        case("quick", STARTED, FINISHED, STARTED, FINISHED), handed_out_again=True
    ),
    "accepted by a broker that failed before it had copied it": replace(
        case("quick"), not_copied=True
    ),
    "never sent back, as its letter was in a log": case(
        "heals", STARTED, reason=Reason.TERMINAL, from_log=True
    ),
    "parked, its retry in a log": case(
        "parks", STARTED, reason=Reason.PARKED, state=State.PARKED, from_log=True
    ),
    "killed three times, though innocent": case("slow", *[STARTED] * 3, reason=Reason.POISON),
    "killed three times, the first before it began": case(
        "slow", *[STARTED] * 2, reason=Reason.POISON, redelivered=True
    ),
    "killed three times, the last before its first line": case(
        "slow", *[STARTED] * 2, reason=Reason.POISON, explanation=THIRD
    ),
    "done, and killed when it was delivered again": case(
        "slow", STARTED, FINISHED, *[STARTED] * 2, reason=Reason.POISON, redelivered=True
    ),
    "its retry refused by the broker": case(
        "recovers", STARTED, reason=Reason.REJECTED, explanation=UNSENT
    ),
    "done while its letter was in a log": case("recovers", STARTED, FINISHED, at=LATER, **LOGGED),
}
WRONG = {
    "lost": (case("quick", STARTED), "lost"),
    "lost, its letter resolved": (
        case("terminal", STARTED, reason=Reason.TERMINAL, state=State.RESOLVED),
        "lost",
    ),
    "parked, though the workers could send it": (
        case("parks", STARTED, reason=Reason.PARKED, state=State.PARKED),
        "lost",
    ),
    "done twice of one delivery": (case("quick", FINISHED, FINISHED), "happened 2 times"),
    "done and dead": (case("quick", FINISHED, reason=Reason.EXHAUSTED), "has an open letter"),
    "dead, and done by a later delivery": (
        case("recovers", STARTED, FINISHED, reason=Reason.REJECTED, redelivered=True),
        "has an open letter",
    ),
    "done before it died, its letter in a log": (
        case("recovers", STARTED, FINISHED, **LOGGED),
        "has an open letter",
    ),
    "dead, and done later, its letter in no log": (
        case("recovers", STARTED, FINISHED, at=LATER, **{**LOGGED, "from_log": False}),
        "has an open letter",
    ),
    "done where it must die": (case("terminal", FINISHED), "ended as done, not as terminal"),
    "dead of another reason": (
        case("terminal", STARTED, reason=Reason.EXHAUSTED),
        "ended as exhausted, not as terminal",
    ),
    "condemned after two deliveries": (
        case("slow", STARTED, STARTED, reason=Reason.POISON),
        "ended as poison, not as done",
    ),
    "condemned after one delivery, whatever the letter says": (
        case("slow", STARTED, reason=Reason.POISON, explanation=THIRD),
        "ended as poison, not as done",
    ),
    "rejected with the broker there": (
        case("recovers", STARTED, reason=Reason.REJECTED),
        "ended as rejected, not as done",
    ),
    "unstored, but never ran": (case("quick", STARTED, reason=Reason.UNSTORED), "it did not"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_end_is_not_a_complaint(name):
    assert complaint(RIGHT[name], DELIVERIES) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_end_is_a_complaint(name):
    found, words = WRONG[name]
    assert words in complaint(found, DELIVERIES)


def test_rows_are_read_in_the_order_of_time(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write("a", STARTED, 1, False)
    ledger.write("b", STARTED, 1, True)
    ledger.write("a", FINISHED, 1, False)
    rows = ledger.rows()
    assert [row.what for row in rows["a"]] == [STARTED, FINISHED]
    assert rows["b"][0].redelivered


def test_letters_are_found_in_a_workers_log(tmp_path):
    log = tmp_path / "worker.log"
    found = letter("0d3f")
    line = encode(found).decode().strip()
    log.write_text(
        "a line\n[CRITICAL] dead letter neither stored nor spooled ([Errno 28] No space left): "
        f"{line}\n[CRITICAL] dead letter neither stored nor spooled (torn): {line[:40]}\n"
    )
    assert last_resort(log) == [found]


def test_a_mix_holds_each_kind_and_as_many_as_asked():
    from random import Random

    kinds = mix(600, Random(1))
    assert len(kinds) == 600
    assert {kind.name for kind in kinds} == {
        kind.name for kind in KINDS.values() if not kind.is_sent_back
    }
    assert kinds == mix(600, Random(1))
    assert kinds != mix(600, Random(2))


def test_brokers_that_fail_over_also_get_tasks_that_are_sent_back():
    from random import Random

    kinds = mix(600, Random(1), sent_back=True)
    assert len(kinds) == 600
    assert {kind.name for kind in kinds} == set(KINDS)


def test_a_letter_that_is_still_to_be_sent_back_is_not_settled():
    waits = case("heals", STARTED, reason=Reason.TERMINAL)
    sent_back = case("heals", STARTED, FINISHED, reason=Reason.TERMINAL, state=State.RESOLVED)
    assert not waits.is_settled
    assert sent_back.is_settled
    assert case("terminal", STARTED, reason=Reason.TERMINAL).is_settled


def redis_file(directory, *commands):
    directory = directory / "appendonlydir"
    directory.mkdir()
    with (directory / "appendonly.aof.1.incr.aof").open("wb") as file:
        for command in commands:
            file.write(b"*%d\r\n" % len(command))
            for word in command:
                file.write(b"$%d\r\n%s\r\n" % (len(word), word))


def message(task_id):
    return b'{"headers": {"id": "%s"}, "properties": {"delivery_tag": "tag-%s"}}' % (
        task_id,
        task_id,
    )


def pushed(task_id):
    return b"LPUSH", b"q", message(task_id)


def held(task_id):
    return b"HSET", b"unacked", b"tag-" + task_id, b'[%s, "", "q"]' % message(task_id)


def redis_files(directory, **files):
    for name, commands in files.items():
        (directory / name).mkdir()
        redis_file(directory / name, *commands)
    return [directory / name for name in files]


def test_what_a_killed_master_did_at_its_end_is_undone(tmp_path):
    select, pop = (b"SELECT", b"0"), (b"RPOP", b"q")
    common = [pushed(b"old"), pop, held(b"old"), pushed(b"waits")]
    both = redis_files(
        tmp_path,
        fallen=[
            select, pushed(b"older"), *common,
            pop, held(b"waits"), pushed(b"new"), (b"HDEL", b"unacked", b"tag-old"),
        ],
        # It had joined later, and goes on as a master.
        successor=[select, *common, pushed(b"newer"), pop, held(b"waits")],
    )  # fmt: skip
    assert undone(*both, "q") == Undone(frozenset({"new"}), frozenset({"waits", "old"}))


def test_nothing_is_undone_if_the_successor_has_it_all(tmp_path):
    common = [pushed(b"a"), (b"RPOP", b"q"), held(b"a")]
    both = redis_files(tmp_path, fallen=common, successor=[*common, pushed(b"b")])
    assert undone(*both, "q") == Undone()


def test_a_successor_that_begins_with_the_last_command_of_the_master_has_not_copied_it_all(
    tmp_path,
):
    begin, end = (b"MULTI",), (b"EXEC",)
    fallen = [step for number in range(30) for step in (begin, pushed(b"%d" % number), end)]
    # It joined after the first ten.
    both = redis_files(tmp_path, fallen=fallen, successor=[end, *fallen[30:84]])
    assert undone(*both, "q").accepted == {"28", "29"}
