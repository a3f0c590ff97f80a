from __future__ import annotations

import pytest

from celery_dlq.store.rows.bodies import within


@pytest.mark.parametrize(
    ("sizes", "most", "taken"),
    [([3, 3, 3], 9, 3), ([3, 3, 3], 8, 2), ([99, 1], 8, 1), ([1, 99, 1], 8, 1), ([], 8, 0)],
)
def test_the_bodies_of_a_claim_are_bounded(sizes, most, taken):
    assert sizes[: within(sizes, most)] == sizes[:taken]
