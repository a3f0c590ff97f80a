"""Encrypts the contents of letters, and decrypts them: AES-256-GCM, by the package ``cryptography``.

A process encrypts with a key of its own, which it makes at random. Each sealed value carries this key,
sealed with the first key of ``dlq_encryption_keys``, so that it can be read wherever the ring is, without a
table. A value of a person's letter is sealed with the key of that person instead, which the store keeps,
until ``dlq forget`` destroys it.

The place of a value, such as a letter's id and the name of a column, is authenticated with it: a value that
was moved to another place cannot be read there.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, AnyStr

from celery_dlq.errors import ContentsSealed, MissingExtra, SealBroken, SettingsError, page

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Bytes of a key.
KEY_SIZE = 32

#: The beginning of a sealed value as bytes; the byte after it says which kind of key sealed it.
_PREFIX = b"\x89dlq sealed"
_BY_RING, _BY_PERSON = _PREFIX + b"\x01", _PREFIX + b"\x02"

#: The beginning of a sealed value as text.
TEXT_PREFIX = "dlq-sealed:"

#: Stands before a clear value that begins like a sealed one.
_CLEAR, _CLEAR_TEXT = _PREFIX + b"\x00", TEXT_PREFIX + "="

_ID_SIZE, _PERSON_SIZE, _NONCE_SIZE, _TAG_SIZE = 8, 16, 12, 16
_WRAPPED_SIZE = _NONCE_SIZE + KEY_SIZE + _TAG_SIZE

#: Characters of base64, in whole groups, for the beginning and the id of the key.
_TEXT_HEAD = 4 * -(-(len(_BY_PERSON) + _PERSON_SIZE) // 3)

#: Values that are sealed with one key of a process. The nonces are random, and repeat among far more values.
_VALUES_PER_KEY = 1 << 24

#: Keys of processes that are kept decrypted: a page of letters has values of few processes.
_OPENED = 1_024


@dataclass(frozen=True)
class PersonKey:
    """The key of a person."""

    #: 16 bytes, which the store derives from the person's name.
    id: bytes
    secret: bytes = field(repr=False)


#: The key of a person by its id; None if it was destroyed.
PersonKeys = Callable[[bytes], bytes | None]


def no_person(_id: bytes) -> None:
    """Knows no key of a person."""


class Keyring:
    """The keys of an app: the first one encrypts, all decrypt. It can be pickled.

    :param keys: 32 bytes each, by name.
    :raises MissingExtra: the package ``cryptography`` is not installed.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)
        self._secrets = {_id_of(secret): secret for secret in keys.values()}
        #: The labels of all keys: each is the name, a dot and the beginning of the key's own hash, so that
        #: two keys with one name have different labels. The first one is that of the key that encrypts.
        self.labels: tuple[str, ...] = tuple(
            f"{name}.{_id_of(secret).hex()[:8]}" for name, secret in keys.items()
        )
        self._first = next(iter(self._secrets))
        self._cipher = _cipher_class()
        self._opened = lru_cache(_OPENED)(self._open_wrapped)
        self._renew()

    def __reduce__(self) -> tuple[type[Keyring], tuple[Mapping[str, bytes]]]:
        return Keyring, (self._keys,)

    @property
    def label(self) -> str:
        """The label of the key that encrypts."""
        return self.labels[0]

    def seal(self, value: AnyStr, place: str, person: PersonKey | None = None) -> AnyStr:
        """``value``, encrypted and bound to ``place``: with the key of ``person``, if one is given. A text
        may have halves of surrogates, and becomes ASCII."""
        if isinstance(value, str):
            sealed = self.seal(value.encode("utf-8", "surrogatepass"), place, person)
            return TEXT_PREFIX + urlsafe_b64encode(sealed).decode("ascii")
        nonce = secrets.token_bytes(_NONCE_SIZE)
        if person is not None:
            sealed = self._cipher(person.secret).encrypt(nonce, value, _bytes_of(place))
            return b"".join((_BY_PERSON, person.id, nonce, sealed))
        if self._left <= 0:
            self._renew()
        self._left -= 1
        return b"".join((self._head, nonce, self._own.encrypt(nonce, value, _bytes_of(place))))

    def open(self, sealed: AnyStr, place: str, persons: PersonKeys = no_person) -> AnyStr:
        """The value that :meth:`seal` was given.

        :raises SealBroken: the value was changed, or moved from another place.
        :raises ContentsSealed: the key is not in the ring or was destroyed.
        """
        if isinstance(sealed, str):
            return self.open(_whole(sealed), place, persons).decode("utf-8", "surrogatepass")
        kind, rest = sealed[: len(_BY_RING)], sealed[len(_BY_RING) :]
        if kind == _BY_RING:
            cipher, rest = self._of_process(rest)
        elif kind == _BY_PERSON:
            cipher, rest = self._of_person(rest, persons)
        else:
            raise SealBroken("This is not an encrypted value; it was written without a key.")
        return _decrypt(cipher, rest, _bytes_of(place))

    def is_current(self, value: str | bytes) -> bool:
        """Whether ``value`` is sealed with the key that encrypts, or a person's, which does not rotate."""
        return _head_of(value).startswith((_BY_PERSON, _BY_RING + self._first))

    def _renew(self) -> None:
        """Make a new key for this process, because a key may seal only a limited number of values."""
        key, nonce = secrets.token_bytes(KEY_SIZE), secrets.token_bytes(_NONCE_SIZE)
        wrapped = self._cipher(self._secrets[self._first]).encrypt(nonce, key, self._first)
        self._own, self._left = self._cipher(key), _VALUES_PER_KEY
        self._head = b"".join((_BY_RING, self._first, nonce, wrapped))

    def _of_process(self, rest: bytes) -> tuple[AESGCM, bytes]:
        end = _ID_SIZE + _WRAPPED_SIZE
        return self._opened(rest[:end]), rest[end:]

    def _open_wrapped(self, head: bytes) -> AESGCM:
        key_id, wrapped = head[:_ID_SIZE], head[_ID_SIZE:]
        if key_id not in self._secrets:
            raise ContentsSealed(
                f"The key with the hash {key_id.hex()[:8]} is not in dlq_encryption_keys; add it again. "
                f"See {page('encryption')}."
            )
        return self._cipher(_decrypt(self._cipher(self._secrets[key_id]), wrapped, key_id))

    def _of_person(self, rest: bytes, persons: PersonKeys) -> tuple[AESGCM, bytes]:
        secret = persons(rest[:_PERSON_SIZE])
        if secret is None:
            raise ContentsSealed(
                "The key of this person was destroyed, so the contents are erased."
            )
        return self._cipher(secret), rest[_PERSON_SIZE:]


def is_sealed(value: str | bytes) -> bool:
    """Whether ``value`` begins like a result of :meth:`Keyring.seal`. No result of :func:`marked_clear`
    does."""
    return _head_of(value).startswith((_BY_RING, _BY_PERSON))


def person_in(value: str | bytes) -> bytes | None:
    """The id of the person whose key has sealed ``value``; None if no person's has."""
    head = _head_of(value)
    end = len(_BY_PERSON) + _PERSON_SIZE
    return head[len(_BY_PERSON) : end] if head.startswith(_BY_PERSON) else None


def marked_clear(value: AnyStr) -> AnyStr:
    """``value`` as it is written without a key: one that begins like a sealed value is marked as clear."""
    if isinstance(value, str):
        return _CLEAR_TEXT + value if value.startswith(TEXT_PREFIX) else value
    return _CLEAR + value if value.startswith(_PREFIX) else value


def without_mark(value: AnyStr) -> AnyStr:
    """The inverse of :func:`marked_clear`."""
    if isinstance(value, str):
        return value.removeprefix(_CLEAR_TEXT)
    return value.removeprefix(_CLEAR)


def needed(ring: Keyring | None) -> Keyring:
    """``ring``, to open a sealed value.

    :raises ContentsSealed: this process has none.
    """
    if ring is None:
        raise ContentsSealed(
            f"The contents are encrypted; set dlq_encryption_keys here, too. See {page('encryption')}."
        )
    return ring


def read_keys(given: Any) -> dict[str, bytes]:
    """The keys of ``dlq_encryption_keys``.

    :param given: texts of base64 or bytes by name.
    :raises SettingsError: a name or a key is not allowed.
    """
    if not isinstance(given, Mapping) or not given:
        raise _refused("it is not a dict with at least one key")
    keys = {}
    for name, value in given.items():
        is_name = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 40
        if not is_name or name.startswith("@"):
            raise _refused("each key has a name of 1 to 40 printable characters, without @ first")
        keys[name] = _read_key(name, value)
    if len(set(keys.values())) < len(keys):
        raise _refused("two names have one key")
    return keys


def _read_key(name: str, value: Any) -> bytes:
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(value, str):
            value = urlsafe_b64decode(value.translate(_URL_SAFE))
        if not isinstance(value, int) and len(value) == KEY_SIZE:
            return bytes(value)
    raise _refused(
        f"the key {name!r} is not {KEY_SIZE} bytes in base64; make one with: openssl rand -base64 32"
    )


def _refused(why: str) -> SettingsError:
    return SettingsError(f"dlq_encryption_keys: {why}. See {page('encryption')}.")


def _whole(sealed: str) -> bytes:
    try:
        return urlsafe_b64decode(sealed.removeprefix(TEXT_PREFIX))
    except ValueError as error:
        raise SealBroken("An encrypted value is damaged: it is not base64.") from error


def _head_of(value: str | bytes) -> bytes:
    """The beginning of a sealed value, with the id of its key; something else of another value."""
    if isinstance(value, bytes):
        return value
    with contextlib.suppress(ValueError):
        if value.startswith(TEXT_PREFIX):
            return urlsafe_b64decode(value[len(TEXT_PREFIX) :][:_TEXT_HEAD])
    return b""


def _decrypt(cipher: AESGCM, sealed: bytes, place: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:], place)
    except (InvalidTag, ValueError) as error:
        raise SealBroken from error


def _cipher_class() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra(
            "dlq_encryption_keys needs the package cryptography; install: pip install 'celery-dlq[crypto]'"
        ) from error
    return AESGCM


def _id_of(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=_ID_SIZE, person=b"celery_dlq key").digest()


def _bytes_of(place: str) -> bytes:
    return place.encode("utf-8", "surrogatepass")


_URL_SAFE = str.maketrans("+/", "-_")
