import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "minio==7.2.20"
import urllib3
from minio import Minio
from minio.error import MinioAdminException
from minio import MinioAdmin
from minio.credentials import StaticProvider
def client(url, **k):
    t = urllib3.Timeout(connect=0.5, read=0.5)
    return Minio(url.split("//")[1], "a", "b" * 8, secure=url.startswith("https"), region="us-east-1",
        http_client=urllib3.PoolManager(timeout=t, retries=urllib3.Retry(total=1, backoff_factor=0, status_forcelist=k.get("force", []))))
def xml(code, message="m"): return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message><Resource>/b/k</Resource><RequestId>1</RequestId><HostId>2</HostId></Error>'
def get(status, code): return lambda: client(S.http(status, xml(code), ctype="application/xml")).get_object("bucket", "key")
def admin(status, body): 
    def f():
        u = S.http(status, body)
        MinioAdmin(endpoint=u.split("//")[1], credentials=StaticProvider("a", "b" * 8), secure=False, http_client=urllib3.PoolManager(retries=False)).user_list()
    return f
AWS = "docs.aws.amazon.com AmazonS3 API ErrorResponses: "
def cases():
    yield "SlowDown 503", get(503, "SlowDown"), "transient", "firm", AWS + "SlowDown, reduce your request rate"
    yield "RequestTimeout 400", get(400, "RequestTimeout"), "transient", "firm", AWS + "RequestTimeout: socket not read from or written to in time"
    yield "AccessDenied 403", get(403, "AccessDenied"), "terminal", "firm", AWS + "AccessDenied"
    yield "NoSuchKey 404", get(404, "NoSuchKey"), "terminal", "firm", AWS + "NoSuchKey"
    yield "HEAD 503 without a body", lambda: client(S.http(503, "")).stat_object("bucket", "key"), "transient", "firm", "api.py _url_open: ServerError(status_code=503)"
    yield "502 page of a proxy", lambda: client(S.http(502, "<html>bad gateway", ctype="text/html")).get_object("bucket", "key"), "transient", "firm", "api.py _url_open: InvalidResponseError(502)"
    yield "admin 403", admin(403, '{"Code":"AccessDenied"}'), "terminal", "firm", "minioadmin.py _url_open: MinioAdminException(str(status), body)"
    yield "admin 503", admin(503, '{"Code":"XMinioServerNotInitialized"}'), "transient", "firm", "minioadmin.py _url_open: MinioAdminException(str(status), body)"
