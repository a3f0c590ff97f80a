"""Decompresses bodies step by step, and never to more bytes than the reader accepts. A message of one
megabyte may decompress to a gigabyte."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kombu import compression

from celery_dlq.errors import BodyTooLarge

#: The largest decompressed body, in bytes, that is opened for a screen, and that is opened to be sent back.
SHOWN_LIMIT, READ_LIMIT = 8 << 20, 64 << 20

#: Beyond :data:`SHOWN_LIMIT`, the largest ratio of decompressed to compressed size; text has a smaller
#: one.
_RATIO = 250

#: The largest body, in bytes, that is decompressed if it cannot be decompressed step by step.
_UNKNOWN_LIMIT = 64 << 10

#: The most memory of a decoder, in bytes. xz -9 takes 65 MiB; a hostile header may ask for 4 GiB.
_DECODER_MEMORY = 128 << 20

#: The most streams in one body. Each end of a stream costs a copy of the rest.
_STREAMS = 1_000

#: Decompresses a body.
#:
#: :raises BodyTooLarge: it has more than this many bytes.
Unpack = Callable[[bytes, int], bytes]


def unpack(body: bytes, method: Any, at_most: int) -> bytes:
    """``body`` as it was before ``method``, a name in kombu's registry, compressed it.

    :param at_most: bytes that it may decompress to; fewer if the body is small.
    :raises BodyTooLarge: it decompresses to more, or to a size that cannot be known in advance.
    :raises Exception: decoders may raise anything.
    """
    decode = compression.get_decoder(method)
    at_most = min(at_most, max(SHOWN_LIMIT, _RATIO * len(body)))
    known = _stepwise(decode)
    if known is not None:
        return known(body, at_most)
    if len(body) > _UNKNOWN_LIMIT:
        raise BodyTooLarge(
            f"its body is compressed by {method}, which cannot be undone step by step, and larger than "
            f"{_size(_UNKNOWN_LIMIT)}"
        )
    return _checked(bytes(decode(body)), at_most)


def check_size(body: bytes, at_most: int) -> None:
    """Check that an uncompressed body may be opened.

    :raises BodyTooLarge: it is too large.
    """
    if len(body) > at_most:
        raise BodyTooLarge(f"its body is larger than {_size(at_most)}")


@dataclass(frozen=True)
class BoundDecoder:
    """Replaces a decoder without a limit in kombu's registry."""

    unpack: Unpack
    at_most: int

    def __call__(self, body: bytes) -> bytes:
        """:raises BodyTooLarge: kombu then leaves ``body`` as it is, and reports the error to the
        consumer."""
        try:
            return self.unpack(body, self.at_most)
        except BodyTooLarge as error:
            raise BodyTooLarge(f"{error} (dlq_unpacked_max_size)") from None


def bound_decoders(at_most: int) -> None:
    """Make this process refuse messages that decompress to more than this many bytes. kombu
    decompresses each message when it comes. If a compression cannot be undone step by step, its
    messages are accepted."""
    for content_type in compression.encoders():
        encode, _ = compression.get_encoder(content_type)
        known = _stepwise(compression.get_decoder(content_type))
        if known is not None:
            compression.register(encode, BoundDecoder(known, at_most), content_type)


def _stepwise(decode: Any) -> Unpack | None:
    """A step-by-step version of ``decode``; None if the decoder is not one of kombu's own."""
    return decode.unpack if isinstance(decode, BoundDecoder) else _KNOWN.get(decode)


def _unpack_zlib(body: bytes, at_most: int) -> bytes:
    # One stream, as zlib.decompress() does.
    data, _ = _unpack_stream(zlib.decompressobj(), body, at_most)
    return _checked(data, at_most)


def _unpack_streams(make: Callable[[], Any], body: bytes, at_most: int) -> bytes:
    data = bytearray()
    for number in range(_STREAMS):
        try:
            part, body = _unpack_stream(make(), body, at_most - len(data))
        except (OSError, lzma.LZMAError):
            if not number:
                raise
            body = b""  # not a further stream; the library's own decompress() ignores it, too
        else:
            data += part
        _checked(data, at_most)
        if not body:
            return bytes(data)
    raise BodyTooLarge(f"its body is made of more than {_STREAMS:,} compressed streams")


def _unpack_stream(decompressor: Any, body: bytes, at_most: int) -> tuple[bytes, bytes]:
    """The content of the first stream in ``body``, up to one byte more than the limit; and the rest."""
    data = decompressor.decompress(body, at_most + 1)
    if not decompressor.eof and len(data) <= at_most:
        raise EOFError("the compressed data is cut off")
    return data, decompressor.unused_data


def _checked(data: bytes | bytearray, at_most: int) -> bytes:
    if len(data) > at_most:
        raise BodyTooLarge(f"its body unpacks to more than {_size(at_most)}")
    return bytes(data)


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.3g} MiB" if count >= 1 << 20 else f"{count:,} bytes"


def _found() -> dict[Any, Unpack]:
    """The decoders that kombu registers itself, each with a step-by-step version."""
    found: dict[Any, Unpack] = {
        zlib.decompress: _unpack_zlib,
        bz2.decompress: partial(_unpack_streams, bz2.BZ2Decompressor),
        lzma.decompress: partial(
            _unpack_streams, partial(lzma.LZMADecompressor, memlimit=_DECODER_MEMORY)
        ),
    }
    brotli, zstd = getattr(compression, "brotli", None), getattr(compression, "zstd", None)
    if brotli is not None and _is_stepwise(brotli):
        found[brotli.decompress] = partial(_unpack_brotli, brotli)
    if hasattr(zstd, "frame_content_size"):  # the package zstandard, before kombu 5.7
        found[compression.zstd_decompress] = partial(_unpack_zstandard, zstd)
    elif zstd is not None:
        found[zstd.decompress] = partial(_unpack_streams, zstd.ZstdDecompressor)
    return found


def _is_stepwise(brotli: Any) -> bool:
    """Whether brotli can limit its output, which it can since 1.2."""
    try:
        brotli.Decompressor().process(b"", output_buffer_limit=1)
    except TypeError:
        return False
    return True


def _unpack_brotli(brotli: Any, body: bytes, at_most: int) -> bytes:
    decompressor = brotli.Decompressor()
    data, more = bytearray(), body
    while not decompressor.is_finished():
        part = decompressor.process(more, output_buffer_limit=at_most + 1 - len(data))
        if not part and not more:
            raise EOFError("the compressed data is cut off")
        data += part
        _checked(data, at_most)
        more = b""
    return bytes(data)


def _unpack_zstandard(zstd: Any, body: bytes, at_most: int) -> bytes:
    size = zstd.frame_content_size(body)
    if size > at_most:
        raise BodyTooLarge(f"its body unpacks to more than {_size(at_most)}")
    # It accepts no more than the frame's size, and no frame without a size.
    return bytes(zstd.ZstdDecompressor().decompress(body))


_KNOWN = _found()
