"""Compressed bodies are opened step by step, whatever they unpack to."""

import bz2
import lzma
import time
import tracemalloc
import zlib
from contextlib import contextmanager

import pytest
from kombu import compression
from kombu.message import Message

from celery_dlq.base import unpack as module
from celery_dlq.base.unpack import SHOWN_LIMIT, bound_decoders, check_size, unpack
from celery_dlq.errors import BodyTooLarge

MIB = 1 << 20
ALL = ["gzip", "bzip2", "lzma", "brotli", "zstd"]

#: What 300 MB of one character compress to, a part of it, and how often that is in it.
CHUNK, CHUNKS = b"0" * 1_000_000, 300


@pytest.fixture(scope="module")
def bomb():
    """A JSON message for a task, of 300 MB in 1.3 MB."""
    packer = zlib.compressobj(1)
    parts = [packer.compress(b'[["'), *(packer.compress(CHUNK) for _ in range(CHUNKS))]
    return b"".join([*parts, packer.compress(b'"], {}, {}]'), packer.flush()])


@contextmanager
def small_memory(most):
    """Nothing in here may take more bytes at a time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak:,} bytes were taken"


@pytest.fixture
def registry(monkeypatch):
    """kombu's decoders, to be changed by the test."""
    monkeypatch.setattr(compression, "_decoders", dict(compression._decoders))
    monkeypatch.setattr(compression, "_encoders", dict(compression._encoders))
    monkeypatch.setattr(compression, "_aliases", dict(compression._aliases))
    return compression


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 5_000], ids=["empty", "x", "long"])
def test_a_compressed_body_is_decompressed(method, body):
    packed, content_type = compression.compress(body, method)
    assert unpack(packed, method, SHOWN_LIMIT) == body
    assert unpack(packed, content_type, len(body)) == body


@pytest.mark.parametrize("method", ALL)
def test_one_byte_more_than_is_allowed_is_too_much(method):
    packed, _ = compression.compress(b"x" * 1_000, method)
    assert len(unpack(packed, method, 1_000)) == 1_000
    with pytest.raises(BodyTooLarge, match="unpacks to more than 999 bytes"):
        unpack(packed, method, 999)


@pytest.mark.parametrize("method", ALL)
def test_a_bomb_costs_no_more_than_is_allowed(method):
    packed, _ = compression.compress(b"0" * (48 * MIB), method)
    with small_memory(16 * MIB), pytest.raises(BodyTooLarge, match="more than 1 MiB"):
        unpack(packed, method, MIB)


def test_a_bomb_of_300_mb_takes_no_time(bomb):
    begun = time.process_time()
    with small_memory(4 * SHOWN_LIMIT), pytest.raises(BodyTooLarge, match="more than 8 MiB"):
        unpack(bomb, "gzip", SHOWN_LIMIT)
    assert time.process_time() - begun < 2.0


def test_beyond_what_a_screen_shows_a_body_unpacks_to_some_times_its_size(monkeypatch):
    packed, _ = compression.compress(b"0" * (SHOWN_LIMIT + MIB), "gzip")
    with pytest.raises(BodyTooLarge, match="more than 8 MiB"):
        unpack(packed, "gzip", 64 * MIB)
    with small_memory(64 * MIB), pytest.raises(BodyTooLarge, match="more than 8 MiB"):
        unpack(packed, "gzip", 64 * MIB)
    monkeypatch.setattr(module, "_RATIO", 2_000)
    assert len(unpack(packed, "gzip", 64 * MIB)) == SHOWN_LIMIT + MIB


@pytest.mark.parametrize("method", ALL)
def test_truncated_data_is_an_error(method):
    packed, _ = compression.compress(bytes(range(256)) * 50, method)
    with pytest.raises(Exception, match=r".") as raised:
        unpack(packed[:-9], method, MIB)
    assert not isinstance(raised.value, BodyTooLarge)


@pytest.mark.parametrize("method", ALL)
def test_uncompressed_data_is_an_error(method):
    with pytest.raises(Exception, match=r".") as raised:
        unpack(b"\x00 no archive", method, MIB)
    assert not isinstance(raised.value, BodyTooLarge)


@pytest.mark.parametrize(("method", "library"), [("bzip2", bz2), ("lzma", lzma)])
def test_several_streams_are_one_body_as_in_the_library_and_bounded_together(method, library):
    packed = library.compress(b"a" * 600) + library.compress(b"b" * 600)
    for junk in (b"", b"junk"):
        assert unpack(packed + junk, method, 1_200) == library.decompress(packed + junk)
    with pytest.raises(BodyTooLarge, match="more than 1,199 bytes"):
        unpack(packed, method, 1_199)


def test_streams_are_counted():
    with pytest.raises(BodyTooLarge, match="more than 1,000 compressed streams"):
        unpack(bz2.compress(b"") * 1_001, "bzip2", MIB)


def test_a_decoder_may_not_take_gigabytes_for_itself():
    # An archive of the older kind names the size of its dictionary in bytes 1 to 4.
    packed = bytearray(lzma.compress(b"x", format=lzma.FORMAT_ALONE))
    packed[1:5] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(lzma.LZMAError):
        unpack(bytes(packed), "lzma", MIB)


def test_a_compression_that_the_user_registered_is_trusted_with_little_only(registry):
    registry.register(bytes, lambda body: body * 10, "application/x-mine", aliases=["mine"])
    assert unpack(b"x", "mine", 10) == b"x" * 10
    with pytest.raises(BodyTooLarge):
        unpack(b"x", "mine", 9)
    with pytest.raises(
        BodyTooLarge, match="compressed by mine, which cannot be undone step by step"
    ):
        unpack(b"x" * 65_537, "mine", 64 * MIB)


def test_a_user_who_has_replaced_a_compression_gets_what_it_says(registry):
    registry.register(bytes, bytes, "application/x-gzip")
    assert unpack(b"x", "gzip", MIB) == b"x"


def test_an_unknown_compression_is_an_error():
    with pytest.raises(KeyError):
        unpack(b"x", "application/x-none", MIB)


def test_a_body_without_compression_is_measured():
    check_size(b"x" * 10, 10)
    with pytest.raises(BodyTooLarge, match="larger than 9 bytes"):
        check_size(b"x" * 10, 9)


# -- in a worker -----------------------------------------------------------------------------------


def message(body, method):
    return Message(body, headers={"compression": method}, content_type="application/json")


@pytest.mark.parametrize("method", ALL)
def test_a_message_that_unpacks_to_too_much_is_left_as_it_came(registry, method):
    bound_decoders(2 * MIB)
    packed, _ = compression.compress(b"0" * (2 * MIB + 1), method)
    with small_memory(16 * MIB):
        received = message(packed, method)
    assert received.body == packed
    [(kind, error, _)] = received.errors
    assert kind is BodyTooLarge
    assert str(error) == "its body unpacks to more than 2 MiB (dlq_unpacked_max_size)"


@pytest.mark.parametrize("method", ALL)
def test_any_other_message_is_unpacked_whatever_its_ratio(registry, method):
    bound_decoders(64 * MIB)
    body = b"0" * (SHOWN_LIMIT + MIB)
    packed, _ = compression.compress(body, method)
    received = message(packed, method)
    assert (received.body, received.errors) == (body, [])


def test_the_bound_may_be_set_again_and_screens_keep_theirs(registry):
    bound_decoders(MIB)
    bound_decoders(64 * MIB)
    packed, _ = compression.compress(b"0" * (2 * MIB), "gzip")
    assert message(packed, "gzip").errors == []
    with pytest.raises(BodyTooLarge, match=r"more than 1 MiB$"):
        unpack(packed, "gzip", MIB)


def test_a_decoder_of_the_user_stays(registry):
    registry.register(bytes, bytes, "application/x-gzip", aliases=["gzip"])
    bound_decoders(MIB)
    assert registry.get_decoder("gzip") is bytes
