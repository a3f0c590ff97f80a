import asyncio
import sys
import types
from functools import partial

import pytest
from support.factories import T0, letter

from celery_dlq.errors import SettingsError
from celery_dlq.hooks import EventHook, EventKind, Log
from celery_dlq.hooks.caller import Caller, Waiting
from celery_dlq.hooks.registry import Hooks
from celery_dlq.model.route import Route


class Pager:
    def page(self, value): ...


@pytest.fixture
def alerts(monkeypatch):
    """A module of the user's."""
    module = types.ModuleType("shop_alerts")
    module.seen = []
    module.page = lambda value: module.seen.append(value)
    module.pager = Pager()
    module.Pager = Pager
    module.number = 17

    async def later(value): ...

    module.later = later
    monkeypatch.setitem(sys.modules, "shop_alerts", module)
    return module


def hooks_of(**given):
    return Hooks(lambda: {EventKind(name): hooks for name, hooks in given.items()})


def tell(hooks, kind, value):
    hooks.tell(Waiting(kind, T0, lambda: value))
    hooks.finish()


def test_each_kind_has_its_own_hooks(alerts):
    hooks = hooks_of(new_group=["shop_alerts.page"])
    tell(hooks, EventKind.NEW_GROUP, "group")
    tell(hooks, EventKind.DEAD_LETTER, "letter")
    assert alerts.seen == ["group"]
    assert hooks.wants(EventKind.NEW_GROUP)
    assert not hooks.wants(EventKind.DEAD_LETTER)


def test_registered_hooks_join_those_of_the_settings(alerts):
    hooks, seen = hooks_of(new_group=["shop_alerts.page"]), []
    tell(hooks, EventKind.NEW_GROUP, 1)
    hooks.register(EventKind.NEW_GROUP, seen.append)
    tell(hooks, EventKind.NEW_GROUP, 2)
    assert (alerts.seen, seen) == ([1, 2], [2])


def test_a_hook_for_two_kinds_has_one_thread(alerts):
    hooks = hooks_of(new_group=["shop_alerts.pager.page"], regression=[alerts.pager.page])
    tell(hooks, EventKind.NEW_GROUP, 1)
    tell(hooks, EventKind.REGRESSION, 2)
    assert len(hooks.status()) == 1


def test_the_settings_are_not_read_before_they_are_needed():
    def settings():
        raise AssertionError

    hooks = Hooks(settings)
    hooks.register(EventKind.RESOLVED, print)
    with pytest.raises(AssertionError):
        hooks.wants(EventKind.RESOLVED)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("shop_alerts.pge", "cannot be imported: AttributeError"),
        ("shop_alters.page", "cannot be imported: ModuleNotFoundError"),
        ("shop alerts", "cannot be imported: ValueError"),
        ("shop_alerts.number", "'shop_alerts.number' cannot be called"),
        ("shop_alerts.Pager", "is a class; give an instance"),
        (Log, "celery_dlq.hooks.services.Log is a class"),
        ("shop_alerts.later", "is a coroutine function"),
        (asyncio.sleep, "asyncio.tasks.sleep is a coroutine function"),
        (17, "builtins.int cannot be called"),
    ],
)
def test_an_invalid_hook_is_refused(alerts, given, why):
    with pytest.raises(SettingsError, match="dlq_hooks: 'regression': .*" + why):
        hooks_of(regression=[given], resolved=[print]).check()


def test_every_wrong_hook_is_named(alerts):
    hooks = hooks_of(regression=["shop_alerts.no"], resolved=[print, "shop_alerts.neither"])
    with pytest.raises(SettingsError, match=r"'regression': .*dlq_hooks: 'resolved': .*neither"):
        hooks.check()


def test_an_invalid_hook_is_not_registered():
    with pytest.raises(SettingsError, match="is a class"):
        hooks_of().register(EventKind.RESOLVED, Log)


def test_an_unchecked_wrong_hook_is_logged_and_the_others_are_called(alerts, caplog):
    hooks = hooks_of(regression=["shop_alerts.no", "shop_alerts.page"])
    tell(hooks, EventKind.REGRESSION, 1)
    tell(hooks, EventKind.REGRESSION, 2)
    assert alerts.seen == [1, 2]
    [record] = caplog.records
    assert "dlq_hooks: 'regression': 'shop_alerts.no' cannot be imported" in record.getMessage()


def test_the_status_counts_by_hook(alerts):
    hooks = hooks_of(regression=["shop_alerts.pager.page", lambda _value: 1 / 0])
    tell(hooks, EventKind.REGRESSION, 1)
    good, bad = hooks.status().values()
    assert good == {"waiting": 0, "dropped": 0, "failed": 0}
    assert bad == {"waiting": 0, "dropped": 0, "failed": 1}


def hooks_of_routes(*routes, **given):
    settings = {EventKind(name): hooks for name, hooks in given.items()}
    return Hooks(
        lambda: settings,
        routes=lambda: routes,
        make_caller=partial(Caller, owner_of=lambda name: f"team-{name}"),
    )


def tell_letter(hooks, made, kind=EventKind.DEAD_LETTER):
    hooks.tell(Waiting(kind, T0, lambda: made, route=made.route))


def test_a_hook_of_a_route_gets_events_with_the_route_and_its_owner():
    seen = []
    hooks = hooks_of_routes(Route("payments", task="*", hooks=(seen.append,)))
    made = letter(route="payments")
    tell_letter(hooks, made)
    tell_letter(hooks, letter(route="mail"))
    tell_letter(hooks, letter())
    hooks.finish()
    [event] = seen
    assert (event.kind, event.value) == (EventKind.DEAD_LETTER, made)
    assert (event.route, event.owner) == ("payments", "team-payments")


def test_a_hook_for_a_kind_and_a_route_is_called_once():
    class Pager(EventHook):
        def __init__(self):
            self.seen = []

        def __call__(self, event):
            self.seen.append(event.value)

    pager = Pager()
    hooks = hooks_of_routes(Route("payments", task="*", hooks=(pager,)), dead_letter=[pager])
    made = letter(route="payments")
    tell_letter(hooks, made)
    hooks.finish()
    assert pager.seen == [made]
    assert len(hooks.status()) == 1


def test_only_arrivals_are_wanted_for_a_route():
    hooks = hooks_of_routes(Route("payments", task="*", hooks=(print,)))
    wanted = {kind for kind in EventKind if hooks.wants(kind)}
    assert wanted == {EventKind.DEAD_LETTER, EventKind.NEW_GROUP, EventKind.REGRESSION}
    assert not hooks_of_routes(Route("payments", task="*")).wants(EventKind.DEAD_LETTER)


def test_a_wrong_hook_of_a_route_is_refused_by_name(alerts):
    hooks = hooks_of_routes(Route("payments", task="*", hooks=("shop_alerts.no", Log)))
    with pytest.raises(SettingsError) as caught:
        hooks.check()
    told = str(caught.value)
    assert "dlq_routes: 'payments': 'shop_alerts.no' cannot be imported" in told
    assert "dlq_routes: 'payments': celery_dlq.hooks.services.Log is a class" in told


def test_an_unchecked_wrong_hook_of_a_route_is_logged_and_the_others_are_called(alerts, caplog):
    hooks = hooks_of_routes(
        Route("payments", task="*", hooks=("shop_alerts.no", "shop_alerts.page"))
    )
    tell_letter(hooks, letter(route="payments"))
    hooks.finish()
    assert [event.route for event in alerts.seen] == ["payments"]
    [record] = caplog.records
    assert "dlq_routes: 'payments': 'shop_alerts.no' cannot be imported" in record.getMessage()


def test_a_hook_of_a_route_that_raises_is_counted_under_its_own_name(alerts):
    def page(event):
        raise RuntimeError("pager is away")

    hooks = hooks_of_routes(Route("payments", task="*", hooks=(page, "shop_alerts.page")))
    tell_letter(hooks, letter(route="payments"))
    hooks.finish()
    assert len(alerts.seen) == 1
    failed = [name for name, counts in hooks.status().items() if counts["failed"]]
    assert failed == [f"{__name__}.{page.__qualname__}"]
