"""GEOparse: data of the Gene Expression Omnibus."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import tempfile  # noqa: E402

import GEOparse  # noqa: E402
from GEOparse.GEOTypes import GSM  # noqa: E402
import pandas  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "geoparse==2.0.4"
FILE = "GEOparse/utils.py download_from_url: IOError 'Download failed due to …' while the cause: "


def get(address, geo="GSM11805"):
    with tempfile.TemporaryDirectory() as folder, stub.rerouted(address):
        return GEOparse.get_GEO(geo=geo, destdir=folder, silent=True)


def unknown_host():
    with tempfile.TemporaryDirectory() as folder, stub.no_such_host():
        return GEOparse.get_GEO(geo="GSM11805", destdir=folder, silent=True)


def short():
    return get(stub.serve((200, "half a file", {"Content-MD5": "0" * 32})))


def not_soft():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "GSM1.txt").write_text("no such page\n")
        return GEOparse.get_GEO(filepath=folder + "/GSM1.txt")


def no_metadata():
    return GSM(
        "GSM1", {"title": ["x"]}, pandas.DataFrame(), pandas.DataFrame({"description": []})
    ).get_metadata_attribute("type")


def cases():
    yield (
        "NCBI is unavailable",
        lambda: get(stub.answer(503, "busy")),
        "transient",
        "firm",
        FILE + "HTTPError 503",
    )
    yield (
        "too many requests",
        lambda: get(stub.answer(429, "slow down")),
        "transient",
        "firm",
        FILE + "HTTPError 429",
    )
    yield (
        "connection refused",
        lambda: get(stub.closed()),
        "transient",
        "firm",
        FILE + "requests' ConnectionError",
    )
    yield (
        "the file came damaged",
        short,
        "transient",
        "soft",
        FILE + "ValueError 'MD5 checksum do NOT passed' (downloader.py)",
    )
    yield (
        "no such record",
        lambda: get(stub.answer(404, "no")),
        "terminal",
        "firm",
        FILE + "HTTPError 404; 'ID could be incorrect'",
    )
    yield (
        "unknown kind of record",
        lambda: get(stub.closed(), "XYZ12"),
        "terminal",
        "firm",
        "GEOparse.py:259 UnknownGEOTypeException",
    )
    yield (
        "the file has no entries",
        not_soft,
        "terminal",
        "firm",
        "GEOparse.py:444 NoEntriesException: is the accession correct?",
    )
    yield ("an attribute is missing", no_metadata, "terminal", "firm", "GEOTypes.py:116 NoMetadataException")
