"""Which cells of the matrix a test run plays: those of the gate, or (``make matrix``) all."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from matrix.mode import POOLS
from matrix.table import MODES

#: Set to any text, it makes a run play every scene on every broker and pool.
WHOLE = os.environ.get("CELERY_DLQ_MATRIX", "")

#: Where the gate plays the scene without harm: the two pairs that differ most in how they deliver and run.
_GATE = {("redis", "prefork"), ("quorum", "gevent")}

_SCENES = tuple(dict.fromkeys(mode.scene for mode in MODES))


def plays(brokers: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Scene, broker and pool of every play on ``brokers``."""
    for scene in _SCENES:
        for broker in brokers:
            for pool in POOLS:
                played = any(it.scene == scene and it.applies_to(broker, pool) for it in MODES)
                if played and (WHOLE or _in_gate(scene, broker, pool)):
                    yield scene, broker, pool


def _in_gate(scene: str, broker: str, pool: str) -> bool:
    """Each harm to workers is played on one broker and pool."""
    return (broker, pool) == ("redis", "prefork") or (scene == "calm" and (broker, pool) in _GATE)


def each_play(*brokers: str) -> pytest.MarkDecorator:
    """Parametrises by ``play``."""
    return pytest.mark.parametrize("play", [_param(play) for play in plays(brokers)])


def each_mode(*brokers: str) -> pytest.MarkDecorator:
    """Parametrises by ``play``, and by the ``mode`` whose end it shows."""
    return pytest.mark.parametrize(
        ("play", "mode"),
        [
            _param(play, mode)
            for play in plays(brokers)
            for mode in MODES
            if mode.scene == play[0] and mode.applies_to(*play[1:])
        ],
    )


def _param(play: tuple[str, str, str], *mode: object) -> object:
    name = "-".join([*play, *(it.id for it in mode)])  # type: ignore[attr-defined]
    return pytest.param(play, *mode, id=name)
