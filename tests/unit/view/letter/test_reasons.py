from __future__ import annotations

from celery_dlq.model.states import Reason
from celery_dlq.view.letter.reasons import MEANINGS


def test_each_reason_has_a_meaning():
    assert set(MEANINGS) == set(Reason)
