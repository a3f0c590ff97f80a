"""django-embed-video: videos of YouTube, Vimeo and SoundCloud in Django."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from django.conf import settings  # noqa: E402

if not settings.configured:
    settings.configure(EMBED_VIDEO_TIMEOUT=0.3)
from embed_video import backends  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "django-embed-video==1.4.10"
FILE = "embed_video/backends.py: "


def vimeo(address):
    with stub.rerouted(address):
        return backends.detect_backend("https://vimeo.com/72304002").info


def soundcloud(address):
    with stub.rerouted(address):
        return backends.detect_backend("https://soundcloud.com/a/b").info


def cases():
    yield (
        "Vimeo does not answer in time",
        lambda: vimeo(stub.silent()),
        "transient",
        "firm",
        "docs: settings EMBED_VIDEO_TIMEOUT, timeout of the requests; requests' ReadTimeout",
    )
    yield (
        "Vimeo refuses the connection",
        lambda: vimeo(stub.closed()),
        "transient",
        "firm",
        FILE + "requests' error as it is",
    )
    yield (
        "SoundCloud is unavailable",
        lambda: soundcloud(stub.answer(503, "busy")),
        "transient",
        "soft",
        FILE + "get_info makes VideoDoesntExistException of every status but 200; the text has the 503",
    )
    yield (
        "no such video on Vimeo",
        lambda: vimeo(stub.answer(404, "72304002 not found.")),
        "terminal",
        "firm",
        FILE + "VideoDoesntExistException: the video does not exist",
    )
    yield (
        "no such track on SoundCloud",
        lambda: soundcloud(stub.answer(404, "no")),
        "terminal",
        "firm",
        FILE + "VideoDoesntExistException: the video does not exist",
    )
    yield (
        "unknown site",
        lambda: backends.detect_backend("https://example.com/x"),
        "terminal",
        "firm",
        FILE + "UnknownBackendException: backend is not recognized",
    )
    yield (
        "address without an id",
        lambda: backends.detect_backend("https://www.youtube.com/").code,
        "terminal",
        "firm",
        FILE + "UnknownIdException: the ID cannot be parsed",
    )
