import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "pyppeteer==2.0.0"
import asyncio, pyppeteer.errors as E
from pyppeteer import connect
from pyppeteer.connection import CDPSession
from pyppeteer.navigator_watcher import NavigatorWatcher
from pyppeteer.page import Page
from pyppeteer.frame_manager import WaitTask
class Manager(dict):
    def __init__(s): s._client = type("C", (), {"_loop": asyncio.get_event_loop()})()
def goto_fails(text):
    """Page._navigate builds '<errorText> at <url>' and Page.goto raises PageError of it."""
    async def f():
        p = Page.__new__(Page)
        class Client:
            async def send(self, *a): return {"frameId": "1", "loaderId": "2", "errorText": text}
        p._client = Client()
        r = await p._navigate("https://site.example/", "")
        raise E.PageError(r)
    return lambda: asyncio.run(f())
def navigation_timeout():
    async def f():
        m = Manager(); from unittest.mock import MagicMock
        fm = MagicMock(); fm._client._loop = asyncio.get_running_loop()
        fut = asyncio.get_running_loop().create_future()
        w = NavigatorWatcher.__new__(NavigatorWatcher); w._timeout = 50; w._loop = asyncio.get_running_loop()
        await w._createTimeoutPromise()
    return asyncio.run(f())
def session_closed():
    async def f():
        await CDPSession(None, "page", "1", asyncio.get_running_loop()).send("Page.navigate")
    asyncio.run(f())
def refused():
    async def f(): await connect(browserWSEndpoint=S.refused().replace("http", "ws") + "/devtools"); await asyncio.sleep(1)
    asyncio.run(f())
def no_endpoint():
    async def f(): await connect()
    asyncio.run(f())
def no_node():
    from pyppeteer.frame_manager import Frame
    async def f():
        fr = Frame.__new__(Frame)
        async def J(s): return None
        fr.J = J; await fr.click("#x")
    asyncio.run(f())
G = "page.py goto: raise PageError(result), result = 'net::… at url' of _navigate; "
def cases():
    yield "navigation timeout", navigation_timeout, "transient", "firm", "navigator_watcher.py: TimeoutError('Navigation Timeout Exceeded: … ms exceeded.')"
    yield "goto: connection refused", goto_fails("net::ERR_CONNECTION_REFUSED"), "transient", "firm", G + "Chromium net error list"
    yield "goto: connection timed out", goto_fails("net::ERR_CONNECTION_TIMED_OUT"), "transient", "firm", G + "Chromium net error list"
    yield "goto: name not resolved", goto_fails("net::ERR_NAME_NOT_RESOLVED"), "terminal", "firm", G + "Chromium net error list"
    yield "goto: certificate invalid", goto_fails("net::ERR_CERT_AUTHORITY_INVALID"), "terminal", "firm", G + "Chromium net error list"
    yield "session closed", session_closed, "transient", "firm", "connection.py NetworkError: Session closed, the page or browser has gone; a new attempt starts a new browser"
    yield "no node found", no_node, "terminal", "firm", "frame_manager.py PageError No node found for selector"
    yield "connect without an endpoint", no_endpoint, "terminal", "firm", "launcher.py BrowserError Need browserWSEndpoint"
