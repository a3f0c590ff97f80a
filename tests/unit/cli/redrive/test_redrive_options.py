from dataclasses import fields
from datetime import datetime, timezone

import click
import pytest
from click.testing import CliRunner

from celery_dlq.cli.redrive.options import orders_options
from celery_dlq.model.operation import Checking, Guard, Orders, Pacing, Repair


def command_that(act):
    return click.command("redrive")(orders_options(act))


@pytest.fixture
def read():
    """The result of a command line, and the orders read from it."""

    def read(*args):
        taken = []
        command = command_that(lambda orders: taken.append(orders))
        return CliRunner().invoke(command, args), taken

    return read


@pytest.fixture
def orders(read):
    def orders(line=""):
        result, taken = read(*line.split())
        assert result.exit_code == 0, result.stderr
        return taken[0]

    return orders


def test_without_options_the_orders_are_the_defaults(orders):
    assert orders() == Orders()


def test_pacing_options(orders):
    found = orders(
        "--limit 1000 --rate 300/m --canary 5 --max-in-flight 20 --max-queue-depth 10000"
    )
    assert found.pacing == Pacing(
        limit=1000, rate=5.0, canary=5, max_in_flight=20, max_queue_depth=10_000,
    )  # fmt: skip


def test_guard_options(orders):
    assert orders("--guard-ratio 5%").guard == Guard(ratio=0.05)
    assert orders("--no-guard").guard == Guard(enabled=False)
    assert orders("--guard-ratio 0.5").guard.ratio == 0.5


def test_checking_options(orders):
    assert orders("--unless-release 1.4.2").checking == Checking(unless_release="1.4.2")
    assert orders("--again").checking == Checking(max_redrives=None)


def test_repair_options(orders):
    found = orders(
        "--set kwargs.currency=USD --set args.0=5 --repair fixed --to-queue slow "
        "--to-task shop.charge2 --eta 30s --priority 0"
    )
    assert found.repair == Repair(
        assignments=("kwargs.currency=USD", "args.0=5"), function="fixed",
        to_queue="slow", to_task="shop.charge2", countdown_s=30.0, priority=0,
    )  # fmt: skip
    noon = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
    assert orders("--eta 2026-11-21T12:00Z").repair == Repair(eta=noon)


#: The orders that only Python gives.
ONLY_IN_PYTHON = {
    "enabled", "batch", "window", "least", "in_a_row", "max_redrives", "max_age_s", "countdown_s",
}  # fmt: skip


def test_the_other_orders_can_be_given():
    orders = {item.name for kind in (Pacing, Guard, Checking, Repair) for item in fields(kind)}
    options = {option.name for option in command_that(lambda orders: None).params}
    assert orders - ONLY_IN_PYTHON == options - {"no_guard", "again", "why"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--rate 0", "is not a rate; write 50/s"),
        ("--rate fast", "is not a rate; write 50/s"),
        ("--limit 0", "not in the range"),
        ("--canary 0", "not in the range"),
        ("--canary 6 --limit 5", "--canary 6 is larger than --limit 5"),
        ("--guard-ratio 0", "is not a share; write 20% or 0.2"),
        ("--guard-ratio 120%", "is not a share; write 20% or 0.2"),
        ("--guard-ratio 20%%", "is not a share; write 20% or 0.2"),
        ("--guard-ratio nan", "is not a share; write 20% or 0.2"),
        ("--no-guard --guard-ratio 5%", "--no-guard contradicts"),
        ("--eta soon", "is not a time"),
        ("--priority 256", "not in the range"),
        ("--why=", "--why is empty"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(read, args, message):
    result, taken = read(*args.split())
    assert (result.exit_code, taken) == (2, [])
    assert message in result.stderr
