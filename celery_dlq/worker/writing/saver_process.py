"""A process that saves letters in a storm of failures, so that the event loop has the interpreter of the
worker's parent for itself."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import IO, Any

from celery_dlq.errors import CeleryDLQError, StoreError, StoreUnavailable

logger: logging.Logger = logging.getLogger(__name__)

#: A batch of fewer records is saved by the worker itself: handing it over would cost as much.
STORM_RECORDS = 20
#: Seconds without a batch after which the process ends, to free its memory.
IDLE_S = 60.0
#: Seconds between two checks whether the worker is alive. An open pipe proves nothing: a pool process that
#: was forked in the meantime holds its other end, too.
_LOOK_S = 1.0
#: Seconds that the process has to end.
_STOP_S = 5.0

_LENGTH = struct.Struct("!Q")
_READY = b"ready"

#: Saves records; its result goes back to the worker. The flag says whether the result includes the letters.
Save = Callable[[Sequence[Any], bool], Any]


def too_late(seconds: float) -> StoreUnavailable:
    """The error for a call that took longer than ``seconds``."""
    return StoreUnavailable(
        f"The dead-letter store did not answer within {seconds:g} s; "
        "check that the database is up, or raise dlq_store_timeout."
    )


class SaverGone(CeleryDLQError):
    """The process that saves letters in a storm has ended, or failed."""


class SaverProcess:
    """Saves large batches in a process of its own, which is started in the first storm and ends when it
    has been idle for :data:`IDLE_S`.

    One thread at a time may use it.

    :param open_saver: called in the process at its start; returns the function that saves. It is pickled.
    :param then: called here with the result of that function.
    :param wants: whether the result includes the letters; called for each batch.
    :param timeout: seconds that one batch may take.
    """

    def __init__(
        self,
        open_saver: Callable[[], Save],
        then: Callable[[Any], object],
        *,
        wants: Callable[[], bool],
        timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_saver, self._then, self._wants = open_saver, then, wants
        self._timeout, self._monotonic = timeout, monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._rest_until = float("-inf")

    def takes(self, records: Sequence[Any]) -> bool:
        """Whether :meth:`save` is to save ``records``. Starts the process if it is needed; until the process
        is ready, the caller saves."""
        if len(records) < STORM_RECORDS or self._monotonic() < self._rest_until:
            return False
        try:
            if self._process is None:
                self._process = self._start()
            self._ready = self._ready or _says_ready(self._process)
        except (OSError, RuntimeError, SaverGone) as error:  # there may be no thread to spare
            logger.warning("letters are saved in the worker itself, in storms, too: %s", error)
            self._rest()
        return self._ready

    def save(self, records: Sequence[Any]) -> None:
        """Have ``records`` saved.

        :raises StoreError: the saver raised it.
        :raises StoreUnavailable: it took too long. The records may be saved nevertheless.
        :raises SaverGone: the process has ended, or failed unexpectedly. The records may be saved
            nevertheless.
        """
        request = pickle.dumps((records, self._wants()), pickle.HIGHEST_PROTOCOL)
        answer, error = pickle.loads(self._exchange(request))  # noqa: S301 - our own process's answer
        if error is not None:
            raise error
        self._then(answer)

    def stop(self) -> None:
        """End the process once it is done with its batch."""
        process, self._process, self._ready = self._process, None, False
        if process is None:
            return
        with suppress(OSError):
            _requests(process).close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _answers(process).close()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The worker's import path, which may differ from that of a new interpreter.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Signals for the worker's group are for the worker, which then stops this one.
            start_new_session=True,
        )
        # It ends by itself when it is idle, and the next storm may be far away.
        threading.Thread(target=process.wait, name="dlq-saver-reaper", daemon=True).start()
        # Not as an argument, which every user of the machine can read: the store's URL holds a password.
        _send(_requests(process), pickle.dumps(self._open_saver))
        return process

    def _rest(self) -> None:
        self.stop()
        self._rest_until = self._monotonic() + IDLE_S

    def _exchange(self, request: bytes) -> bytes:
        process, late = self._process, threading.Event()
        if process is None:
            raise SaverGone

        def kill() -> None:
            late.set()
            process.kill()

        watchdog = threading.Timer(self._timeout, kill)
        watchdog.start()
        try:
            _send(_requests(process), request)
            return _receive(_answers(process))
        except (OSError, SaverGone):
            idle = process.wait() == 0
            self.stop() if idle else self._rest()
            raise too_late(self._timeout) if late.is_set() else SaverGone() from None
        finally:
            watchdog.cancel()


def _requests(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None  # noqa: S101 - it was made with a pipe
    return process.stdin


def _answers(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101 - it was made with a pipe
    return process.stdout


def _says_ready(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process is ready to save.

    :raises SaverGone: it failed to start.
    """
    answers = _answers(process)
    return bool(wait([answers.fileno()], 0.0)) and _receive(answers) == _READY


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """The next message.

    :raises SaverGone: no further message comes.
    """
    head = pipe.read(_LENGTH.size)
    message = pipe.read(*_LENGTH.unpack(head)) if len(head) == _LENGTH.size else b""
    if not message or len(message) < _LENGTH.unpack(head)[0]:
        raise SaverGone
    return message


def main() -> None:
    """The process: saves records that come on standard input, and answers on standard output."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Nothing that a driver prints may be taken for an answer.
    os.dup2(2, 1)
    requests = SimpleQueue[bytes]()
    threading.Thread(target=_read, args=(requests, os.getppid()), daemon=True).start()
    save: Save = pickle.loads(requests.get())()  # noqa: S301 - from the worker that started this
    _send(answers, _READY)
    while request := requests.get():
        _send(answers, pickle.dumps(_saved(save, request)))


def _saved(save: Save, request: bytes) -> tuple[Any, Exception | None]:
    """The answer to a request: a result, or an error to raise."""
    try:
        return save(*pickle.loads(request)), None  # noqa: S301 - from the worker that started this
    except StoreError as error:
        return None, error
    except Exception as error:  # noqa: BLE001 - told to the worker, which then saves by itself
        return None, SaverGone(f"{type(error).__name__}: {error}")


def _read(requests: SimpleQueue[bytes], worker: int) -> None:
    """Pass on each request, and an empty one at the end. If the worker is gone, end the process at once: the
    messages of these letters are delivered again, and may succeed."""
    pipe, idle_s = os.fdopen(0, "rb"), 0.0
    with suppress(SaverGone):
        while idle_s < IDLE_S:
            came = wait([pipe.fileno()], _LOOK_S)
            if os.getppid() != worker:
                os._exit(1)
            idle_s = 0.0 if came else idle_s + _LOOK_S
            if came:
                requests.put(_receive(pipe))
    requests.put(b"")
