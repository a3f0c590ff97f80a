import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "borneo==5.5.0"
import borneo, requests
from borneo.serdeutil import SerdeUtil
from borneo.http import RequestUtils
def server(code, msg="m"):
    def f(): raise SerdeUtil.map_exception(code, msg)      # as http.py _process_ok_response raises it
    return f
def status(code): return lambda: RequestUtils._process_not_ok_response(b"", code)
def refused(url, timeout=500):
    import logging; logging.disable(logging.CRITICAL)
    c = borneo.NoSQLHandleConfig(url, borneo.kv.StoreAccessTokenProvider()); c.set_logger(None)
    h = borneo.NoSQLHandle(c); r = borneo.GetRequest().set_table_name("t").set_key({"id": 1}); r.set_timeout(timeout); h.get(r)
T, R, U = SerdeUtil.THROTTLING_ERROR, SerdeUtil.SERVER_RETRY_ERROR, SerdeUtil.USER_ERROR
D = "exception.py docstring of "
def cases():
    yield "read throttled", server(T.READ_LIMIT_EXCEEDED), "transient", "firm", D + "ReadThrottlingException, RetryableException"
    yield "security info not ready", server(R.SECURITY_INFO_UNAVAILABLE), "transient", "firm", D + "SecurityInfoNotReadyException: must be retried"
    yield "service unavailable", server(R.SERVICE_UNAVAILABLE), "transient", "firm", D + "SystemException: RetryableException, internal to the system"
    yield "table not ready", server(U.TABLE_NOT_READY), "transient", "firm", D + "TableNotReadyException, RetryableException"
    yield "request timeout of the server", server(R.REQUEST_TIMEOUT), "transient", "firm", D + "RequestTimeoutException"
    yield "no server listens", lambda: refused(S.refused()), "transient", "firm", "http.py: requests ConnectionError or RequestTimeoutException"
    yield "503 status", status(503), "transient", "firm", "http.py _process_not_ok_response: NoSQLException('Error response = 503')"
    yield "table not found", server(U.TABLE_NOT_FOUND), "terminal", "firm", D + "TableNotFoundException"
    yield "invalid authorization", server(U.INVALID_AUTHORIZATION), "terminal", "firm", D + "InvalidAuthorizationException"
    yield "row too large", server(U.ROW_SIZE_LIMIT_EXCEEDED), "terminal", "firm", D + "RowSizeLimitException"
