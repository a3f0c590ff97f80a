"""biocommons.seqrepo: sequences, local or over REST."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))

import sqlite3  # noqa: E402
import tempfile  # noqa: E402

from biocommons.seqrepo import SeqRepo  # noqa: E402
from biocommons.seqrepo.dataproxy import SeqRepoRESTDataProxy, create_dataproxy  # noqa: E402
import holda_stub as stub  # noqa: E402

LIBRARY = "biocommons-seqrepo==0.6.11"


def fetch(address):
    return SeqRepoRESTDataProxy(address + "/seqrepo").get_metadata("refseq:NM_000551.3")


def locked():
    with tempfile.TemporaryDirectory() as folder:
        repo = SeqRepo(folder + "/repo", writeable=True)
        repo.aliases._db.execute("pragma busy_timeout = 100")
        other = sqlite3.connect(folder + "/repo/aliases.sqlite3")
        other.execute("begin exclusive")
        try:
            repo.aliases.store_alias("seq", "ns", "alias")
        finally:
            other.rollback()


def local(work):
    with tempfile.TemporaryDirectory() as folder:
        SeqRepo(folder + "/repo", writeable=True)
        return work(SeqRepo(folder + "/repo"))


def cases():
    yield (
        "the REST service is unavailable",
        lambda: fetch(stub.answer(503, "busy")),
        "transient",
        "firm",
        "dataproxy.py _get_metadata: raise_for_status",
    )
    yield (
        "the REST service refuses the connection",
        lambda: fetch(stub.closed()),
        "transient",
        "firm",
        "requests' error as it is",
    )
    yield (
        "the REST service hangs up",
        lambda: fetch(stub.hangs_up()),
        "transient",
        "firm",
        "requests' error as it is",
    )
    yield (
        "the database of aliases is locked",
        locked,
        "transient",
        "firm",
        "seqaliasdb.py store_alias re-raises all but IntegrityError; sqlite3: database is locked",
    )
    yield (
        "the REST service does not know the sequence",
        lambda: fetch(stub.answer(404, "no")),
        "terminal",
        "firm",
        "dataproxy.py: 404 is a KeyError of the identifier",
    )
    yield (
        "the repository does not know the alias",
        lambda: local(lambda r: r.fetch("NM_1", namespace="refseq")),
        "terminal",
        "firm",
        "seqrepo.py _get_unique_seqid: KeyError if there is no match",
    )
    yield (
        "the repository is read-only",
        lambda: local(lambda r: r.store("ACGT", [{"namespace": "a", "alias": "b"}])),
        "terminal",
        "firm",
        "seqrepo.py:222 RuntimeError: opened read-only",
    )
    yield (
        "unknown scheme",
        lambda: create_dataproxy("seqrepo+ftp://x/seqrepo"),
        "terminal",
        "firm",
        "dataproxy.py ValueError",
    )
