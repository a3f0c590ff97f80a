from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.classify.wait import retry_delay

TYPE = b"type.googleapis.com/google.rpc.RetryInfo"


def varint(value):
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def number(field, value):
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def block(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def status(*details):
    return number(1, 8) + block(2, b"busy") + b"".join(block(3, detail) for detail in details)


def retry_info(*duration):
    return block(1, TYPE) + block(2, block(1, b"".join(duration)))


HELP = block(1, b"type.googleapis.com/google.rpc.Help") + block(2, number(1, 5))


def test_seconds_and_nanoseconds():
    assert retry_delay(status(retry_info(number(1, 30)))) == 30.0
    assert retry_delay(status(HELP, retry_info(number(1, 1), number(2, 500_000_000)))) == 1.5
    assert retry_delay(status(retry_info())) == 0.0
    assert retry_delay(status(retry_info(number(1, -30)))) == -30.0


def test_no_retry_info():
    assert retry_delay(b"") is None
    assert retry_delay(status()) is None
    assert retry_delay(status(HELP)) is None
    assert retry_delay(status(block(1, TYPE))) is None


def test_other_fields_are_passed_over():
    fixed = varint(9 << 3 | 1) + bytes(8) + varint(9 << 3 | 5) + bytes(4)
    assert retry_delay(fixed + status(retry_info(number(7, 1), number(1, 30)))) == 30.0


def test_garbage():
    whole = status(retry_info(number(1, 30)))
    for end in range(1, len(whole)):
        assert retry_delay(whole[:end]) is None
    assert retry_delay(b"\xff" * 20) is None
    assert retry_delay(varint(1 << 3 | 3)) is None


@given(st.integers(0, 2**62), st.integers(0, 999_999_999))
def test_any_duration(seconds, nanos):
    data = status(HELP, retry_info(number(1, seconds), number(2, nanos)))
    assert retry_delay(data) == seconds + nanos / 1e9


@given(st.binary(max_size=200), st.integers(0, 60), st.integers(0, 255))
def test_bytes_of_any_kind_never_raise(noise, position, byte):
    whole = bytearray(status(HELP, retry_info(number(1, 30))))
    whole[position] = byte
    for data in (noise, bytes(whole), status(noise), status(block(1, TYPE) + block(2, noise))):
        delay = retry_delay(data)
        assert delay is None or type(delay) is float
