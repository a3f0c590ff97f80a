from celery_dlq.model.states import OPEN_STATES, TRANSITIONS, State, may_move


def test_every_state_has_its_row():
    assert set(TRANSITIONS) == set(State)


def test_every_state_can_be_reached_and_none_is_a_trap():
    reached = {State.DEAD, State.PARKED} | {
        target for targets in TRANSITIONS.values() for target in targets
    }
    assert reached == set(State)
    assert all(TRANSITIONS[state] for state in State)


def test_a_letter_is_closed_only_by_success_or_a_person():
    closing = set(State) - OPEN_STATES - {State.PARKED}
    assert closing == {State.RESOLVED, State.DISCARDED}
    assert not may_move(State.CLAIMED, State.DISCARDED), "a redrive that is under way is let finish"


def test_nothing_moves_into_itself():
    assert not any(may_move(state, state) for state in State)
