"""Libraries that speak HTTP or WebSocket."""

from celery_dlq.classify.builtin.web import (
    aiohttp,
    httpx,
    pycurl,
    requests,
    urllib,
    urllib3,
    websockets,
)

ROWS = (
    *urllib.ROWS,
    *requests.ROWS,
    *urllib3.ROWS,
    *httpx.ROWS,
    *aiohttp.ROWS,
    *pycurl.ROWS,
    *websockets.ROWS,
)
