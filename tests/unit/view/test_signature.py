"""The signature of a task beside the arguments of a message."""

import functools

import pytest
from celery import Celery, Task

from celery_dlq.base.redact import Redactor
from celery_dlq.view.signature import signature_of


@pytest.fixture
def app():
    return Celery("unit", set_as_current=False)


def beside(app, function, args=(), kwargs=None, **options):
    app.task(name="shop.task", shared=False, **options)(function)
    app.finalize()
    return signature_of(app.tasks["shop.task"], list(args), kwargs or {}, Redactor())


def filled(signature):
    return {one.name: one.filled for one in signature.parameters}


def test_arguments_fill_parameters_by_place_and_by_name(app):
    def function(a, b, /, c, *rest, d, e=5, **more): ...

    found = beside(app, function, [1, 2, 3, 4], {"d": 6, "x": 7})
    assert filled(found) == {
        "a": ("args[0]",), "b": ("args[1]",), "c": ("args[2]",), "*rest": ("args[3]",),
        "d": ("kwargs.d",), "e": (), "**more": ("kwargs.x",),
    }  # fmt: skip
    assert (found.why_not, found.unexpected) == ("", ())
    assert [one.is_missing for one in found.parameters] == [False] * 7
    assert [one.default for one in found.parameters] == [None] * 5 + ["5", None]


def test_the_name_of_a_positional_parameter_is_not_a_keyword(app):
    def function(a, /): ...

    found = beside(app, function, [], {"a": 1})
    assert (filled(found), found.unexpected) == ({"a": ()}, ("kwargs.a",))
    assert found.parameters[0].is_missing
    assert found.why_not


@pytest.mark.parametrize(
    ("args", "kwargs", "unexpected", "said"),
    [
        ([1, 2, 3], {}, ("args[2]",), "too many positional"),
        ([1], {"a": 2}, ("kwargs.a",), "multiple values"),
        ([1], {"z": 2}, ("kwargs.z",), "unexpected keyword argument 'z'"),
        ([], {}, (), "missing a required argument: 'a'"),
    ],
)
def test_arguments_that_do_not_fit(app, args, kwargs, unexpected, said):
    def function(a, b=1): ...

    found = beside(app, function, args, kwargs)
    assert found.unexpected == unexpected
    assert said in found.why_not


def test_an_argument_that_the_base_class_adds_is_not_one_of_the_message(app):
    class WithRequest(Task):
        def __new__(cls):
            task = super().__new__(cls)
            task.__header__ = functools.partial(task.__header__, object())
            return task

    def function(request, url: str, timeout=1.5): ...

    found = beside(app, function, ["https://shop.example"], base=WithRequest)
    assert filled(found) == {"url": ("args[0]",), "timeout": ()}
    assert [(one.annotation, one.default) for one in found.parameters] == [
        ("str", None),
        ("", "1.5"),
    ]
    assert found.why_not == ""


def test_many_arguments_are_counted(app):
    def function(*rest): ...

    [rest] = beside(app, function, range(1_000)).parameters
    assert rest.filled[:2] == ("args[0]", "args[1]")
    assert rest.filled[-1] == "and 995 more"


def test_a_hostile_default_and_a_long_annotation(app):
    class Evil:
        def __repr__(self):
            raise SystemExit

    evil = Evil()

    def function(a=evil, api_key="sk-1", token=None): ...

    function.__annotations__["a"] = "x" * 500

    found = beside(app, function)
    assert len(found.parameters[0].annotation) <= 80
    assert found.parameters[0].default == "<Evil: __repr__ raised SystemExit>"
    assert [one.default for one in found.parameters[1:]] == ["[redacted]", "None"]


def test_the_docstring_is_the_tasks_own(app):
    def silent(): ...

    def spoken():
        """Charge a card.

        More.
        """

    class Whole(Task):
        """Ship an order."""

        name = "shop.whole"

        def run(self, order): ...

    class Mute(Task):
        name = "shop.mute"

        def run(self): ...

    for task in (Whole(), Mute()):
        app.register_task(task)
    assert beside(app, silent).doc == ""
    whole = signature_of(app.tasks["shop.whole"], [1], {}, Redactor())
    assert (whole.doc, filled(whole)) == ("Ship an order.", {"order": ("args[0]",)})
    assert signature_of(app.tasks["shop.mute"], [], {}, Redactor()).doc == ""
    other = Celery("other", set_as_current=False)
    assert beside(other, spoken).doc == "Charge a card."


def test_a_task_whose_parameters_are_unknown(app):
    class Batches(Task):
        name = "shop.batches"
        typing, flush_every = False, 10

        def run(self, requests): ...

    app.register_task(Batches())
    found = signature_of(app.tasks["shop.batches"], [1, 2], {"a": 1}, Redactor())
    assert (found.parameters, found.unexpected, found.why_not) == (None, (), "")
