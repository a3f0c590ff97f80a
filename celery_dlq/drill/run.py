"""Runs a drill: makes its place, starts its worker, lets each scenario happen, and removes everything."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from celery_dlq.api.queue import DeadLetterQueue
from celery_dlq.drill import place
from celery_dlq.drill.account import Account, Facts, Result, account_of
from celery_dlq.drill.ground import Ground
from celery_dlq.drill.process import Plan
from celery_dlq.drill.scenarios import SCENARIOS, LeftOut
from celery_dlq.settings import Settings
from celery_dlq.store.sql import SQLStore
from celery_dlq.worker.broker_limits import driver_of


def drill(
    app: Any,
    app_name: str,
    settings: Settings,
    *,
    only: Sequence[str] = (),
    pool: str | None = None,
    store_url: str | None = None,
    on_account: Callable[[Account], None] = lambda _account: None,
) -> list[Account]:
    """Do what can happen in production to messages of the drill's own; returns the accounts.

    :param app_name: as after ``celery -A``.
    :param settings: of the app.
    :param only: names of scenarios; empty for all.
    :param pool: of the worker; None for that of the app's configuration.
    :param store_url: an empty database; None for tables of its own beside those of the app.
    :param on_account: called with each account as soon as it is known.
    :raises DrillError: the drill cannot take place here.
    :raises StoreError: the database failed.
    """
    found = []
    with _ended_by_signals(), _ground(app, app_name, settings, pool, store_url) as ground:
        for name in SCENARIOS:
            if not only or name in only:
                found.append(_account(ground, name))
                on_account(found[-1])
    return found


@contextlib.contextmanager
def _ground(
    app: Any, app_name: str, settings: Settings, pool: str | None, store_url: str | None
) -> Iterator[Ground]:
    name = f"celery_dlq_drill_{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-"))
        options = place.own_options(app, name, directory)
        tables = (
            place.given_tables(store_url)
            if store_url
            else place.own_tables(settings.store_url, name)
        )
        direct = stack.enter_context(tables)
        spool_dir = stack.enter_context(place.own_directory(settings.spool_dir, name))
        recorder = settings.recorder_dir or os.path.join(settings.spool_dir, "recorder")
        recorder_dir = stack.enter_context(place.own_directory(recorder, f"{name}_recorder"))
        database, through = stack.enter_context(place.cuttable_store(direct))
        with app.connection_for_write() as connection:
            own_url = str(connection.as_uri(include_password=True))
        broker, broker_url = stack.enter_context(place.cuttable_broker(app, own_url))
        exchange_type, arguments = place.kind_of_queue(app)
        plan = Plan(
            app=app_name, queue=name, exchange_type=exchange_type, queue_arguments=arguments,
            directory=directory, broker_url=broker_url, transport_options=options, store_url=through,
            spool_dir=spool_dir, recorder_dir=recorder_dir, pool=pool,
        )  # fmt: skip
        plan.write()
        connect = stack.enter_context(place.own_queue(app, plan, own_url))
        store = SQLStore(
            direct, timeout=settings.store_timeout, ring=DeadLetterQueue.of(app).keyring,
            namespaces=settings.namespaces,
        )  # fmt: skip
        stack.callback(store.close)
        ground = Ground(
            app=app, plan=plan, settings=settings, connect=connect, store=store,
            broker=broker, database=database,
        )  # fmt: skip
        stack.enter_context(ground)
        ground.start_worker()
        yield ground


def _account(ground: Ground, name: str) -> Account:
    scenario, began, ended_alone = SCENARIOS[name], time.monotonic(), ground.ended_alone
    try:
        sent = scenario.act(ground)
    except LeftOut as why:
        return Account(scenario=name, title=scenario.title, result=Result.LEFT_OUT, text=str(why))
    ground.until(lambda: all(map(scenario.is_final, ground.ends(sent))), scenario.patience_s)
    facts = Facts(
        conf=ground.app.conf, settings=ground.settings, driver=driver_of(ground.app),
        pool=ground.plan.pool or str(ground.app.conf.worker_pool),
        ended_alone=ground.ended_alone - ended_alone,
    )  # fmt: skip
    seconds = time.monotonic() - began
    return account_of(name, scenario.title, ground.ends(sent), scenario.is_right, facts, seconds)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does. After the first of these signals, the block removes what it
    has made, undisturbed."""

    def end(_number: int, _frame: object) -> None:
        for number in ends:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    ends = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, end) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
