from __future__ import annotations

from datetime import timedelta

import pytest
from support.factories import T0, attempt, letter, operation

from celery_dlq.model.letter import Outcome
from celery_dlq.model.operation import Counts, Sending, SendingState
from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

pytestmark = pytest.mark.usefixtures("counts_hold_in_the_end")

REDRIVEN = Filter(states=frozenset({State.REDRIVEN}))
#: Two operations on the same letters.
ONE, TWO = operation("one"), operation("two")


def minutes(number: float):
    return T0 + timedelta(minutes=number)


def claim(store, of=ONE, token: str = "t", limit: int = 10, now: float = 30) -> list[str]:
    """The ids that are claimed for two minutes."""
    taken = store.claims.take(
        of, token=token, lease_until=minutes(now + 2), limit=limit, now=minutes(now)
    )
    assert taken.token == token
    return [item.task_id for item in taken.letters]


def confirm(store, *task_ids: str, of=ONE, token: str = "t", change: str = "") -> int:
    return store.claims.confirm(of.id, token, dict.fromkeys(task_ids, change), now=minutes(31))


def skip(store, *task_ids: str, of=ONE, token: str = "t", why: str = "too old") -> int:
    return store.claims.skip(of.id, token, dict.fromkeys(task_ids, why), now=minutes(31))


def states(store) -> dict[str, str]:
    page = store.letters.find(Filter(states=frozenset(State)), limit=100)
    return {item.task_id: item.state.value for item in page.letters}


def sendings(store, of=ONE) -> dict[str, str]:
    return {item.task_id: item.state.value for item in store.sendings.of_operation(of.id).rows}


@pytest.fixture
def three(store):
    """Letters c, a, b, from the oldest failure to the newest, and two operations on them."""
    for at, task_id in enumerate("cab"):
        store.letters.save([letter(task_id, attempt(minutes=at))])
    for made in (ONE, TWO):
        store.operations.create(made)
    return store


def test_the_oldest_failures_are_taken_first_and_are_being_sent(three):
    assert claim(three, limit=2) == ["c", "a"]
    assert claim(three, token="u") == ["b"]
    assert claim(three, token="v") == []
    assert states(three) == dict.fromkeys("abc", "claimed")
    assert sendings(three) == dict.fromkeys("abc", "sending")
    (found,) = three.sendings.of_letter("a")
    assert found == Sending(
        operation="one", task_id="a", task="shop.charge", redrive=1, state=SendingState.SENDING
    )


def test_a_claimed_letter_has_what_a_redrive_sends_and_nothing_to_look_at(store):
    whole = letter("0d3f", tags=("x",))
    store.letters.save([whole])
    lease = minutes(32)
    (found,) = store.claims.take(ONE, token="t", lease_until=lease, limit=1, now=T0).letters
    assert found == whole.with_(
        state=State.CLAIMED, claim_token="t", lease_expires_at=lease, attempts=(), args=None,
        kwargs=None, tags=(), exception_type="", message="", traceback="", worker="",
        pid=None, root_id=None, parent_id=None, group_id=None, correlation_id=None,
    )  # fmt: skip


def test_a_confirmed_letter_is_sent_with_its_change(three):
    claim(three)
    assert confirm(three, "a", "c") == 2
    assert confirm(three, "b", change="- EUX\n+ EUR") == 1
    assert states(three) == dict.fromkeys("abc", "redriven")
    (found,) = three.sendings.of_letter("b")
    assert (found.state, found.change, found.sent_at) == (
        SendingState.SENT, "- EUX\n+ EUR", minutes(31),
    )  # fmt: skip
    assert three.letters.get("b").redrive_count == 1
    assert three.operations.get("one").counts == Counts(planned=3, sent=3)


def test_no_outcome_is_awaited_of_a_task_that_reports_none(three):
    claim(three)
    sent = dict.fromkeys("abc", "")
    assert three.claims.confirm("one", "t", sent, silent={"a"}, now=minutes(31)) == 3
    assert sendings(three) == {"a": "unknown", "b": "sent", "c": "sent"}
    assert states(three) == dict.fromkeys("abc", "redriven")
    (found,) = three.sendings.of_letter("a")
    assert (found.why, found.ended_at) == ("its task reports no outcome", minutes(31))


def test_a_confirmation_may_be_repeated(three):
    claim(three)
    assert confirm(three, "a") == 1
    assert confirm(three, "a") == 0
    assert three.letters.get("a").redrive_count == 1
    assert sendings(three)["a"] == "sent"


def test_a_skipped_letter_is_as_it_was_and_not_taken_again(three):
    claim(three)
    assert skip(three, "a", "b") == 2
    assert states(three) == {"a": "dead", "b": "dead", "c": "claimed"}
    (found,) = three.sendings.of_letter("a")
    assert (found.state, found.why, found.ended_at) == (
        SendingState.SKIPPED, "too old", minutes(31),
    )  # fmt: skip
    assert claim(three, token="u") == []
    assert claim(three, TWO, "v") == ["a", "b"]


def test_a_released_letter_is_as_it_was_and_may_be_taken_again(three):
    claim(three)
    assert three.claims.release("one", "t", ["a", "b"]) == 2
    assert states(three) == {"a": "dead", "b": "dead", "c": "claimed"}
    assert sendings(three) == {"c": "sending"}
    assert claim(three, token="u") == ["a", "b"]
    assert three.letters.get("a").redrive_count == 0


def test_another_token_moves_nothing(three):
    claim(three)
    assert confirm(three, "a", token="other") == 0
    assert skip(three, "b", token="other") == 0
    assert three.claims.release("one", "other", ["c"]) == 0
    assert states(three) == dict.fromkeys("abc", "claimed")
    assert sendings(three) == dict.fromkeys("abc", "sending")


def test_without_letters_nothing_happens(three):
    assert confirm(three) == skip(three) == three.claims.release("one", "t", []) == 0


def test_two_operations_never_hold_the_same_letter(three):
    assert claim(three, limit=1) == ["c"]
    assert claim(three, TWO, "u") == ["a", "b"]
    confirm(three, "c")
    confirm(three, "a", "b", of=TWO, token="u")
    assert claim(three, token="v") == claim(three, TWO, "w") == []
    assert (sendings(three), sendings(three, TWO)) == ({"c": "sent"}, {"a": "sent", "b": "sent"})


class TestAfterAKill:
    """Its letters are claimed, and some of them were sent and not marked."""

    def test_it_takes_up_what_it_held_under_the_same_number(self, three):
        claim(three)
        assert claim(three, token="u", now=31) == []
        assert claim(three, token="u", now=33) == ["c", "a", "b"]
        assert [item.redrive for item in three.sendings.of_letter("a")] == [1]
        assert confirm(three, "a") == 0
        assert sendings(three)["a"] == "sending"
        assert confirm(three, "a", token="u") == 1
        assert sendings(three)["a"] == "sent"

    def test_it_does_so_when_the_letters_were_rescued(self, three):
        claim(three)
        assert three.claims.rescue(minutes(31)) == 0
        assert three.claims.rescue(minutes(33)) == 3
        assert states(three) == dict.fromkeys("abc", "dead")
        assert sendings(three) == dict.fromkeys("abc", "sending")
        assert claim(three, token="u") == ["c", "a", "b"]

    def test_a_process_that_takes_it_over_need_not_wait_for_the_lease(self, three):
        claim(three, limit=2)
        claim(three, TWO, "u")
        assert three.claims.free("one") == 2
        assert three.claims.free("one") == 0
        assert states(three) == {"a": "dead", "b": "claimed", "c": "dead"}
        assert sendings(three) == {"a": "sending", "c": "sending"}
        assert claim(three, token="v") == ["c", "a"]

    def test_a_mark_that_comes_after_the_rescue_says_that_it_is_out(self, three):
        claim(three)
        three.claims.rescue(minutes(33))
        assert confirm(three, "a") == 0
        assert (states(three)["a"], sendings(three)["a"]) == ("dead", "sent")
        assert claim(three, token="u") == ["c", "b"]

    def test_a_letter_that_may_be_out_is_not_skipped_but_unknown(self, three):
        claim(three)
        claim(three, token="u", now=33)
        skip(three, "a", token="u")
        assert sendings(three)["a"] == "unknown"
        assert three.sendings.of_letter("a")[0].why == "too old"

    def test_its_number_is_not_forgotten_when_it_is_released(self, three):
        claim(three)
        claim(three, token="u", now=33)
        assert three.claims.release("one", "u", ["a"]) == 1
        assert (states(three)["a"], sendings(three)["a"]) == ("dead", "sending")
        assert claim(three, token="v") == ["a"]

    def test_another_operation_may_take_its_letters_under_the_same_number(self, three):
        claim(three)
        assert claim(three, TWO, "u", now=33) == ["c", "a", "b"]
        assert [(item.operation, item.redrive) for item in three.sendings.of_letter("a")] == [
            ("one", 1), ("two", 1),
        ]  # fmt: skip
        assert confirm(three, "a") == 0
        assert sendings(three)["a"] == "sent"
        assert claim(three, token="v", now=34) == []
        assert confirm(three, "a", of=TWO, token="u") == 1


class TestRedrivenLetters:
    """Letters for whose outcome a person no longer waits."""

    AGAIN = operation("again", wanted=REDRIVEN)

    @pytest.fixture
    def sent(self, three):
        claim(three)
        confirm(three, "a", "b", "c")
        return three

    def test_they_are_taken_only_when_they_are_named(self, sent):
        assert claim(sent, TWO, "u") == []
        assert claim(sent, self.AGAIN, "u", limit=2) == ["c", "a"]
        assert confirm(sent, "a", of=self.AGAIN, token="u") == 1
        assert sent.letters.get("a").redrive_count == 2
        assert [item.redrive for item in sent.sendings.of_letter("a")] == [1, 2]

    def test_each_is_taken_once(self, sent):
        assert claim(sent, self.AGAIN, "u") == ["c", "a", "b"]
        confirm(sent, "a", "b", "c", of=self.AGAIN, token="u")
        assert claim(sent, self.AGAIN, "v") == []

    @pytest.mark.parametrize("end", ["release", "skip", "rescue"])
    def test_those_that_are_not_sent_are_as_they_were(self, sent, end):
        claim(sent, self.AGAIN, "u")
        if end == "release":
            sent.claims.release("again", "u", ["a", "b", "c"])
        elif end == "skip":
            skip(sent, "a", "b", "c", of=self.AGAIN, token="u")
        else:
            sent.claims.rescue(minutes(60))
        assert states(sent) == dict.fromkeys("abc", "redriven")
        found = sent.letters.get("a")
        assert (found.redrive_count, found.claim_token, found.lease_expires_at) == (1, None, None)
        assert claim(sent, self.AGAIN, "v") == ([] if end == "skip" else ["c", "a", "b"])


@pytest.mark.parametrize(
    ("named_states", "taken"),
    [
        ({State.DEAD}, ["expired", "waiting"]),
        ({State.REDRIVEN}, ["sent"]),
        ({State.DEAD, State.REDRIVEN}, ["expired", "sent", "waiting"]),
        ({State.RESOLVED, State.DISCARDED}, []),
        (set(), ["expired", "waiting"]),
    ],
)
def test_a_claim_takes_letters_in_the_named_states(store, named_states, taken):
    store.letters.save(
        [letter(name) for name in ("closed", "expired", "held", "ran", "sent", "waiting")]
    )
    for name, now in (("sent", 10), ("expired", 10), ("held", 30)):
        one = operation(name, wanted=Filter(ids=(name,)))
        assert claim(store, one, name, now=now) == [name]
        if name == "sent":
            confirm(store, "sent", of=one, token="sent")
    store.closing.discard(Filter(ids=("closed",)), who="ann", why="", now=minutes(1))
    ran = Outcome(task_id="ran", redrive=0, succeeded_at=minutes(1), worker="w")
    store.letters.record_outcomes([ran])
    wanted = Filter(states=frozenset(named_states))
    assert sorted(claim(store, operation("all", wanted=wanted), "all")) == taken


def test_sent_letters_without_an_outcome_are_awaited(three):
    claim(three)
    assert three.sendings.count_awaited(Filter()) == 0  # claimed, which no redrive takes
    sent = dict.fromkeys("abc", "")
    three.claims.confirm("one", "t", sent, silent={"c"}, now=minutes(31))
    assert three.sendings.count_awaited(Filter()) == 2
    assert three.sendings.count_awaited(Filter(ids=("b", "c"))) == 1
    done = Outcome(task_id="a", redrive=1, succeeded_at=minutes(32), worker="w")
    three.letters.record_outcomes([done])
    assert three.sendings.count_awaited(Filter()) == 1
    three.letters.save([letter("b", attempt(redrive=1, minutes=33))])
    assert three.sendings.count_awaited(Filter()) == 0


def test_a_letter_that_was_sent_twice_is_awaited_once(three):
    again = operation("again", wanted=REDRIVEN)
    for of, token in ((ONE, "t"), (again, "u")):
        claim(three, of, token)
        confirm(three, *"abc", of=of, token=token)
    assert three.sendings.count_awaited(REDRIVEN) == 3
    assert three.sendings.expire(sent_before=minutes(60), now=minutes(61)) == 6
    assert three.sendings.count_awaited(REDRIVEN) == 0


def test_only_the_letters_of_an_operation_are_taken(three):
    claim(three, limit=2)
    claim(three, TWO, "u")
    confirm(three, "a", "c")
    confirm(three, "b", of=TWO, token="u")
    of_one = Filter(operation=ONE.id, states=frozenset({State.REDRIVEN}))
    assert claim(three, operation("again", wanted=of_one), "v") == ["c", "a"]


def test_only_letters_that_match_are_taken(three):
    for wanted, taken in (
        (Filter(ids=("a", "zz")), ["a"]),
        (Filter(task="refund"), []),
        (Filter(until=minutes(1)), ["c"]),
    ):
        token = f"of {taken}"
        assert claim(three, operation(token, wanted=wanted), token) == taken


def test_many_letters_are_claimed_and_confirmed_by_the_batch(store):
    store.letters.save([letter(f"{number:04}") for number in range(1100)])
    seen: list[str] = []
    while batch := claim(store, limit=500, token=str(len(seen))):
        assert confirm(store, *batch, token=str(len(seen))) == len(batch)
        seen += batch
    assert sorted(seen) == [f"{number:04}" for number in range(1100)]


def test_a_letter_whose_id_is_too_long_is_moved_by_its_own_id(store):
    long = "x" * 400
    store.letters.save([letter(long)])
    # Claimed at one moment, they would come in any order.
    for end, moment in ((skip, 30), (confirm, 30.5)):
        of = operation(end.__name__)
        claim(store, of, of.id, now=moment)
        assert end(store, long, of=of, token=of.id) == 1
    assert [item.state.value for item in store.sendings.of_letter(long)] == ["skipped", "sent"]


def test_hostile_texts_are_kept_as_far_as_they_can_be(store):
    store.letters.save([letter("a"), letter("b")])
    claim(store)
    skip(store, "a", why="\x00\ud800" + "x" * 9_000)
    confirm(store, "b", change="\x00\ud800")
    (skipped,), (sent,) = store.sendings.of_letter("a"), store.sendings.of_letter("b")
    assert len(skipped.why) < 600
    assert sent.change


def test_sendings_are_listed_by_page_and_state(store):
    store.letters.save([letter(f"{number}") for number in range(5)])
    claim(store)
    confirm(store, "1", "3", "4")
    first = store.sendings.of_operation("one", limit=2)
    assert [item.task_id for item in first.rows] == ["0", "1"]
    second = store.sendings.of_operation("one", limit=2, after=first.next)
    last = store.sendings.of_operation("one", limit=2, after=second.next)
    assert [item.task_id for item in (*second.rows, *last.rows)] == ["2", "3", "4"]
    assert last.next is None
    sent = store.sendings.of_operation("one", states=frozenset({SendingState.SENT}), limit=3)
    assert ([item.task_id for item in sent.rows], sent.next) == (["1", "3", "4"], None)
    assert store.sendings.of_operation("none").rows == ()


def test_the_redrives_after_failures_of_one_cause(three):
    three.letters.save([letter("d", attempt(minutes=5), fingerprint="another")])
    claim(three)
    confirm(three, *"abcd")
    three.letters.record_outcomes([Outcome(task_id="a", redrive=1, succeeded_at=T0, worker="w")])
    found = three.sendings.of_cause("9c1e0000deadbeef", ["a", "b", "d", "gone"])
    assert {(one.task_id, one.state) for one in found} == {
        ("a", SendingState.SUCCEEDED),
        ("b", SendingState.SENT),
    }
    assert three.sendings.of_cause("9c1e0000deadbeef", []) == []
