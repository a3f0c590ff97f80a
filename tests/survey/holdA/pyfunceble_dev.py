"""pyfunceble-dev: availability of domains, addresses and URLs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

from PyFunceble.helpers.download import DownloadHelper  # noqa: E402
from PyFunceble.query.whois.query_tool import WhoisQueryTool  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "pyfunceble-dev==4.4.2"
FILE = "PyFunceble/helpers/download.py download_text: UnableToDownload "


def download(address, **kw):
    return DownloadHelper(address + "/list.txt", retries=1, own_proxy_handler=False, **kw).download_text()


def unknown_host():
    with stub.no_such_host():
        return download("http://lists.nowhere.example")


def cases():
    yield (
        "the server of the list is unavailable",
        lambda: download(stub.answer(503, "busy")),
        "transient",
        "firm",
        FILE + "with the status code in its text (line 377)",
    )
    yield (
        "too many downloads",
        lambda: download(stub.answer(429, "slow down")),
        "transient",
        "firm",
        FILE + "with the status code in its text (line 377)",
    )
    yield (
        "the server of the list resets the connection",
        lambda: download(stub.resets()),
        "transient",
        "firm",
        FILE + "from a requests error (line 381), here a reset connection",
    )
    yield (
        "the server of the list refuses the connection",
        lambda: download(stub.closed()),
        "transient",
        "firm",
        FILE + "from a requests error (line 381), here a refused connection",
    )
    yield (
        "no such list",
        lambda: download(stub.answer(404, "no")),
        "terminal",
        "firm",
        FILE + "with the status code (line 377)",
    )
    yield (
        "unknown host",
        unknown_host,
        "terminal",
        "firm",
        FILE + "from a requests error (line 381): the host does not exist",
    )
    yield (
        "bad certificate",
        lambda: download(stub.self_signed()),
        "terminal",
        "firm",
        FILE + "from a requests error (line 381): certificate verification failed",
    )
    yield (
        "empty subject",
        lambda: WhoisQueryTool().set_subject(""),
        "terminal",
        "firm",
        "query/whois/query_tool.py:213 ValueError",
    )
