import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "discord-py==2.7.1"
import asyncio, aiohttp, json, discord
from discord.http import HTTPClient, Route
def call(url, **k):
    async def f():
        h = HTTPClient(asyncio.get_running_loop(), **k); h.connector = aiohttp.TCPConnector()
        await_sess = aiohttp.ClientSession(connector=h.connector); h._HTTPClient__session = await_sess; h._global_over = asyncio.Event(); h._global_over.set()
        old, Route.BASE = Route.BASE, url; sleep = asyncio.sleep
        async def quick(*a): await sleep(0)
        asyncio.sleep = quick
        try: await h.request(Route("GET", "/gateway"))
        finally:
            Route.BASE = old; asyncio.sleep = sleep; await await_sess.close()
    return asyncio.run(f())
def answer(status, body=None, headers=None, **k): return lambda: call(S.http(status, json.dumps(body or {"code": 0, "message": "m"}), headers), **k)
class Sock: close_code = None
def closed(code):
    def f(): raise discord.ConnectionClosed(Sock(), shard_id=0, code=code)
    return f
D = "discord.com developers docs, opcodes and status codes: gateway close event code "
R = "constructed as in gateway.py poll_event: raise ConnectionClosed(self.socket, shard_id=…, code=code); "
def cases():
    yield "rate limit longer than max_ratelimit_timeout", answer(429, {"retry_after": 120.0, "global": False, "message": "x"}, {"Via": "1.1 google", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Limit": "5", "X-Ratelimit-Reset-After": "1", "X-Ratelimit-Reset": "1"}, max_ratelimit_timeout=30.0), "transient", "firm", "errors.py RateLimited: seconds to wait before retrying the request"
    yield "429 of Cloudflare", answer(429, {"message": "banned"}), "transient", "firm", "http.py: 429 without Via, HTTPException"
    yield "503", answer(503), "transient", "firm", "errors.py DiscordServerError 503"
    yield "502 five times", answer(502), "transient", "firm", "http.py: 500, 502, 504, 524 unconditional retry; then DiscordServerError"
    yield "forbidden", answer(403, {"code": 50013, "message": "Missing Permissions"}), "terminal", "firm", "errors.py Forbidden"
    yield "unknown channel", answer(404, {"code": 10003, "message": "Unknown Channel"}), "terminal", "firm", "errors.py NotFound"
    yield "refused", lambda: call(S.refused()), "transient", "firm", "aiohttp ClientConnectorError"
    yield "gateway closed 4004 authentication failed", closed(4004), "terminal", "firm", D + "4004, reconnect: false. " + R
    yield "gateway closed 1006", closed(1006), "transient", "firm", "RFC 6455 1006 abnormal closure; " + R
