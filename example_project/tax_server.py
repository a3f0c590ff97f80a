"""A tax service that misbehaves on demand.

``GET /rates/FR`` answers with a rate, in the mood that the country's office is in; ``PUT /moods/FR``
with one of the moods below changes it::

    fine          answers
    busy 2        answers 503 to the next two requests, then is fine
    throttled 1   answers 429 with "Retry-After: 1" to the next request, then is fine
    down          hangs up without an answer
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RATES = {"DE": "0.19", "FR": "0.20", "GR": "0.24", "IT": "0.22"}

#: How the service starts.
MOODS = {"FR": "busy 2", "IT": "throttled 1", "GR": "down"}

RETRY_AFTER_S = 1


class TaxService:
    """The moods of the offices, shared by the requests."""

    def __init__(self, moods: Mapping[str, str] = MOODS) -> None:
        self._lock = threading.Lock()
        self._moods = dict(moods)

    def set_mood(self, country: str, mood: str) -> None:
        """Put an office into ``mood``."""
        with self._lock:
            self._moods[country] = mood

    def next_mood(self, country: str) -> str:
        """The mood that the next request meets, without its count."""
        with self._lock:
            mood, _, left = self._moods.get(country, "fine").partition(" ")
            if left:
                more = int(left) - 1
                self._moods[country] = f"{mood} {more}" if more else "fine"
            return mood


class _Handler(BaseHTTPRequestHandler):
    service: TaxService

    def do_GET(self) -> None:
        collection, country = self._path()
        if collection != "rates" or country not in RATES:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        mood = self.service.next_mood(country)
        if mood == "busy":
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
        elif mood == "throttled":
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(RETRY_AFTER_S)})
        elif mood == "down":
            self.close_connection = True
        else:
            self._answer(HTTPStatus.OK, body={"country": country, "rate": RATES[country]})

    def do_PUT(self) -> None:
        collection, country = self._path()
        if collection != "moods" or country not in RATES:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        size = int(self.headers.get("Content-Length", 0))
        self.service.set_mood(country, self.rfile.read(size).decode("ascii").strip())
        self._answer(HTTPStatus.OK)

    def _path(self) -> tuple[str, str]:
        collection, _, country = self.path.strip("/").partition("/")
        return collection, country

    def _answer(
        self,
        status: HTTPStatus,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, str] | None = None,
    ) -> None:
        content = json.dumps(body or {"status": status.phrase}).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the errors are on purpose."""


def make_server(address: tuple[str, int]) -> ThreadingHTTPServer:
    """A server on ``address``; port 0 is any free one."""
    handler = type("Handler", (_Handler,), {"service": TaxService()})
    return ThreadingHTTPServer(address, handler)


@contextmanager
def serving() -> Iterator[str]:
    """Serve on a free local port for as long as the block runs; gives the URL."""
    with make_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    make_server(("", int(os.environ.get("SHOP_TAX_PORT", "8765")))).serve_forever()
