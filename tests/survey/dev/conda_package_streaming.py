import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "conda-package-streaming==0.13.0"
import io, tempfile, zipfile, requests
from conda_package_streaming.url import stream_conda_info, conda_reader_for_url
from conda_package_streaming import package_streaming, extract, exceptions
from conda_package_streaming.lazy_wheel import LazyConda
def get(url, ext=".conda"):
    for x in stream_conda_info(url + "/linux-64/p-1-0" + ext): pass
def bad():
    b = io.BytesIO(b"not a zip file at all"); list(package_streaming.stream_conda_component("p-1-0.conda", b, "info"))
def unsafe():
    import tarfile, bz2
    b = io.BytesIO(); t = tarfile.open(fileobj=b, mode="w:bz2"); i = tarfile.TarInfo("../../evil"); i.size = 1; t.addfile(i, io.BytesIO(b"x")); t.close(); b.seek(0)
    extract.extract_stream(package_streaming.stream_conda_component("p-1-0.tar.bz2", b, "pkg"), tempfile.mkdtemp())
def cases():
    yield "503", lambda: get(S.http(503, "x")), "transient", "firm", "lazy_wheel.py raise_for_status: requests HTTPError 503"
    yield "404", lambda: get(S.http(404, "x")), "terminal", "firm", "lazy_wheel.py raise_for_status: requests HTTPError 404"
    yield "refused", lambda: get(S.refused()), "transient", "firm", "requests ConnectionError"
    yield "reset", lambda: get(S.reset(), ".tar.bz2"), "transient", "firm", "requests ConnectionError, reset by peer"
    yield "unsupported extension", lambda: get(S.http(200, "x"), ".rpm"), "terminal", "firm", "url.py ValueError"
    yield "not a conda file", bad, "terminal", "firm", "zipfile.BadZipFile"
    yield "unsafe path", unsafe, "terminal", "firm", "extract.py SafetyError"
