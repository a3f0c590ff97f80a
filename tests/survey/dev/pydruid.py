import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "pydruid==0.6.9"
import json
from pydruid.client import PyDruid
from pydruid.db import connect
def native(url): return PyDruid(url, "druid/v2").timeseries(datasource="d", granularity="all", intervals="2020/2021", aggregations={})
def sql(status, body, **k):
    def f():
        u = S.http(status, body, **k); list(connect(host="127.0.0.1", port=int(u.rsplit(":")[-1]), path="/druid/v2/sql/").cursor().execute("select 1"))
    return f
def druid(error, cls, msg="m", **k): return json.dumps({"error": error, "errorClass": cls, "errorMessage": msg, "host": "h", **k})
DOC = "druid.apache.org docs, querying, Query execution failures: "
def cases():
    yield "native query capacity exceeded 429", lambda: native(S.http(429, druid("Query capacity exceeded", "o.a.d.query.QueryCapacityExceededException"))), "transient", "firm", DOC + "Query capacity exceeded: the lane is full, 429; client.py OSError of HTTPError"
    yield "native query timeout 504", lambda: native(S.http(504, druid("Query timeout", "o.a.d.query.QueryTimeoutException"))), "transient", "firm", DOC + "Query timeout, 504"
    yield "native 400", lambda: native(S.http(400, druid("Unknown exception", "x"))), "terminal", "firm", "client.py _post OSError of HTTPError 400"
    yield "native 401", lambda: native(S.http(401, "{}")), "terminal", "firm", "client.py _post OSError of HTTPError 401"
    yield "native refused", lambda: native(S.refused()), "transient", "firm", "urllib URLError"
    yield "sql query capacity exceeded", sql(429, druid("Query capacity exceeded", "org.apache.druid.query.QueryCapacityExceededException", "Too many concurrent queries for lane 'low', query capacity of 2 exceeded. Please try your query again later.")), "transient", "firm", DOC + "Query capacity exceeded; db/api.py ProgrammingError"
    yield "sql parse failed", sql(400, druid("SQL parse failed", "org.apache.calcite.sql.parser.SqlParseException", "Encountered \"selec\" at line 1")), "terminal", "firm", DOC + "SQL parse failed; db/api.py ProgrammingError"
    yield "sql 503 page of a proxy", sql(503, "<html>503 Service Temporarily Unavailable", ctype="text/html"), "transient", "firm", "db/api.py: Unknown error (Unknown): the text"
