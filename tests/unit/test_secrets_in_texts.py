"""A secret of any length, at any place of a text of any length, in every field of a letter: no part of it is
stored where it is searched, and none is shown."""

import os
import time

import pytest
from hypothesis import HealthCheck, given, settings
from support.stores.secret_texts import KINDS, LIMITS, leaks, letter_with, planted, texts

#: Texts that are tried by night.
COUNT = int(os.environ.get("CELERY_DLQ_SECRETS", "10000"))


@given(texts(LIMITS[:4], 1_000))
def test_no_field_has_a_part_of_a_secret(one):
    assert leaks(one) == [], (one.kind, one.text[:200])


@pytest.mark.nightly
@settings(max_examples=COUNT, suppress_health_check=list(HealthCheck))
@given(texts(LIMITS, 6_000))
def test_no_field_has_a_part_of_a_secret_in_many_texts(one):
    assert leaks(one) == [], (one.kind, one.text[:200])


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_long_text(kind):
    one = planted(kind, 1, 1_500, 900, 100, is_run=False)
    assert leaks(one) == []


@pytest.mark.parametrize("kind", ["name", "pair", "address", "key"])
def test_a_long_text_takes_no_longer(kind):
    one = planted(kind, 1, 100, 1_000, 1_000_000, is_run=False)
    begun = time.process_time()
    letter_with(one)
    assert time.process_time() - begun < 2.0
