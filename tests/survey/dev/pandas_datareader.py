import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "pandas-datareader==0.11.1"
import pandas as pd
from pandas_datareader.base import _BaseReader
from pandas_datareader import data as web
class Reader(_BaseReader):
    """A reader of the library with another address; all readers use _get_response of the base class."""
    where = ""
    @property
    def url(self): return self.where
def read(url, timeout=2):
    r = Reader("GOOG", "2020-01-01", "2020-02-01", retry_count=1, pause=0.01, timeout=timeout); r.where = url + "/d"; return r.read()
B = "base.py _get_response: RemoteDataError('Unable to read URL: …'); a non-200 leaves only the text, "
def cases():
    yield "503 page", lambda: read(S.http(503, "<html>503 Service Temporarily Unavailable</html>", ctype="text/html; charset=utf-8")), "transient", "firm", B + "here a 503 page"
    yield "429 text", lambda: read(S.http(429, "Edge: Too Many Requests", ctype="text/html; charset=utf-8")), "transient", "firm", B + "here Yahoo's 429 text"
    yield "404 page", lambda: read(S.http(404, "<html>404 Not Found</html>", ctype="text/html; charset=utf-8")), "terminal", "firm", B + "here a 404 page"
    yield "connection refused", lambda: read(S.refused()), "transient", "firm", "base.py: RemoteDataError with the text of the last RequestException"
    yield "timeout", lambda: read(S.silent(), 0.2), "transient", "firm", "base.py: RemoteDataError with the text of the last RequestException"
    yield "no data", lambda: read(S.http(200, "")), "terminal", "firm", "base.py: OSError 'request returned no data; check URL for invalid inputs'"
    yield "unknown data source", lambda: web.DataReader("GOOG", "nosource"), "terminal", "firm", "data.py NotImplementedError"
