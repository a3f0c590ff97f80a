"""A Flower without the keys of letters says on each page why it does not show them."""

from __future__ import annotations

import pytest
from support.factories import letter

from celery_dlq.base.sealing import Keyring

GROUP = "9c1e0000deadbeef"


@pytest.fixture
def locked(store):
    """An encrypted letter, and no keys."""
    store.transactions.ring = Keyring({"new": b"n" * 32})
    store.letters.save([letter("a1", message="no room")])
    store.transactions.ring = None


@pytest.mark.parametrize(
    "path",
    ["", "/letters", "/letters/a1", f"/groups/{GROUP}", f"/discard?group={GROUP}"],
)
def test_it_says_why_there_are_no_contents(ann, locked, path):
    page = ann.get(f"/dead-letters{path}")
    assert page.status == 200
    assert "set dlq_encryption_keys here, too" in page.text
    assert "no room" not in page.text
