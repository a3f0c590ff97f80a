"""With and without the libraries that are quicker, the same comes out."""

from __future__ import annotations

import base64
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.redrive import fast

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=9,
)


@pytest.fixture(params=["fast", "Python's own"])
def way(request, monkeypatch):
    if request.param != "fast":
        monkeypatch.setattr(fast, "orjson", None)
        monkeypatch.setattr(fast, "pybase64", None)
    else:
        assert fast.orjson is not None
        assert fast.pybase64 is not None


@pytest.mark.parametrize("body", [b"", b"a", bytes(range(256)) * 9])
def test_base64_has_no_line_breaks(way, body):
    assert fast.in_base64(body) == base64.b64encode(body).decode("ascii")


@given(values)
def test_json_is_read_as_python_reads_it(value):
    body = json.dumps(value).encode()
    assert fast.read_json(body) == json.loads(body)


def test_what_only_python_reads_is_read(way):
    (number, half), _ = fast.read_json(b'[[NaN, "\\ud800"], {}]')
    assert math.isnan(number)
    assert half == "\ud800"


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"[1] 2"])
def test_what_is_no_json_is_an_error(way, body):
    with pytest.raises(ValueError):
        fast.read_json(body)
