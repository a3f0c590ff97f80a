import pytest

from celery_dlq.classify.chain import (
    NODE_LIMIT,
    Budget,
    Link,
    causes,
    members,
    reachable,
    walk,
)


class Wrapper(Exception):
    def __init__(self, *args, **attributes):
        super().__init__(*args)
        self.__dict__.update(attributes)


def raised_from(outer, cause):
    try:
        raise outer from cause
    except type(outer) as error:
        return error


def raised_while_handling(outer, inner):
    try:
        try:
            raise inner
        except type(inner):
            raise outer  # noqa: B904 - the implicit context is the point
    except type(outer) as error:
        return error


def raised_from_none(outer, inner):
    try:
        try:
            raise inner
        except type(inner):
            raise outer from None
    except type(outer) as error:
        return error


def test_the_cause_is_followed():
    cause = KeyError("x")
    assert causes(raised_from(Wrapper(), cause)) == [cause]


def test_the_context_is_followed_only_without_anything_explicit():
    context, wrapped = KeyError("x"), OSError("y")
    assert causes(raised_while_handling(Wrapper(), context)) == [context]
    assert causes(raised_while_handling(Wrapper(orig=wrapped), context)) == [wrapped]


def test_from_none_hides_the_context_but_not_from_a_search():
    context = KeyError("x")
    hidden = raised_from_none(Wrapper(), context)
    assert causes(hidden) == []
    assert reachable(hidden) == [context]


@pytest.mark.parametrize(
    "name",
    [
        "orig", "reason", "original_exception", "original_error", "inner_exception",
        "last_exception", "base_exception", "cause", "os_error",
    ],
)  # fmt: skip
def test_wrapped_exceptions_are_found(name):
    inner = KeyError("x")
    assert causes(Wrapper(**{name: inner})) == [inner]
    assert causes(Wrapper(**{name: "a word"})) == []


def test_leading_arguments_may_be_exceptions():
    inner, far = KeyError("x"), OSError("y")
    assert causes(Wrapper(1, inner, 2, 3, far)) == [inner]


def test_a_mock_that_claims_to_be_an_exception_is_not_one():
    from unittest.mock import MagicMock

    assert causes(Wrapper(orig=MagicMock(spec=ValueError()))) == []


def test_each_exception_is_visited_once_nearest_first():
    inner = KeyError("inner")
    left, right = Wrapper(orig=inner), Wrapper(orig=inner)
    top = Wrapper(left, right)
    found = [link.exc for link in walk(Link(top), causes, Budget())]
    assert found == [top, left, right, inner]


def test_cycles_end():
    one, two = Wrapper("one"), Wrapper("two")
    one.__cause__, two.__cause__ = two, one
    assert [link.exc for link in walk(Link(one), causes, Budget())] == [one, two]


def test_an_exception_that_holds_itself():
    own = Wrapper()
    own.args = (own,)
    assert [link.exc for link in walk(Link(own), causes, Budget())] == [own]


def test_endless_chains_end_at_the_limit():
    class Endless(Exception):
        @property
        def orig(self):
            return Endless()

    assert len(list(walk(Link(Endless()), causes, Budget()))) == NODE_LIMIT
    assert len(list(walk(Link(Endless()), causes, Budget(7)))) == 7


def test_the_path_names_the_types_walked():
    inner = ConnectionRefusedError()
    top = Wrapper(orig=raised_from(RuntimeError(), inner))
    *_, last = walk(Link(top), causes, Budget())
    assert last.path() == f"{__name__}.Wrapper <- RuntimeError <- ConnectionRefusedError"


def test_a_long_path_is_cut():
    link = Link(KeyError())
    for _ in range(300):
        link = Link(KeyError(), link)
    assert len(link.path()) <= 500


@pytest.mark.parametrize("inner", [(), [KeyError()], (KeyError(), "text"), "text", None])
def test_a_class_that_only_looks_like_a_group_has_no_members(inner):
    assert members(Wrapper(exceptions=inner)) == ()


def test_members_of_a_group():
    inner = (KeyError(), OSError())
    assert members(Wrapper(exceptions=inner)) == inner
    assert reachable(Wrapper(exceptions=inner)) == [*inner]
