import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "simple-websocket==1.1.0"
import base64, hashlib, time, simple_websocket
from simple_websocket import Client
def handshake(c, then=b""):
    data = c.recv(65536).decode(); key = [l.split(": ")[1] for l in data.split("\r\n") if l.lower().startswith("sec-websocket-key")][0]
    acc = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    c.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {acc}\r\n\r\n".encode())
    time.sleep(0.1)
    if then: c.sendall(then)
    time.sleep(0.1); c.close()
def closes(code, text=b""):
    def f():
        port = S.tcp(lambda c: handshake(c, bytes([0x88, 2 + len(text)]) + code.to_bytes(2, "big") + text))
        ws = Client.connect(f"ws://127.0.0.1:{port}/x"); return ws.receive(timeout=5)
    return f
def rejects(status): return lambda: Client.connect(S.http(status, "no").replace("http", "ws") + "/x")
def drop():
    ws = Client.connect(f"ws://127.0.0.1:{S.tcp(handshake)}/x"); ws.receive(timeout=5)
def nohost():
    with S.no_such_host(): Client.connect("ws://nothing.invalid/x")
RFC = "RFC 6455 7.4.1 / IANA registry of close codes: "
def cases():
    yield "server goes away 1001", closes(1001), "transient", "firm", RFC + "1001 going away, a server going down"
    yield "try again later 1013", closes(1013, b"busy"), "transient", "firm", RFC + "1013 Try Again Later"
    yield "policy violation 1008", closes(1008, b"bad token"), "terminal", "firm", RFC + "1008 policy violation"
    yield "connection lost without a close frame", drop, "transient", "firm", "ws.py _thread: recv of nothing ends the connection; receive raises ConnectionClosed"
    yield "normal closure 1000", closes(1000), "terminal", "soft", RFC + "1000 the purpose was fulfilled"
    yield "handshake rejected 503", rejects(503), "transient", "firm", "ws.py handshake: ConnectionError(status_code=503)"
    yield "handshake rejected 401", rejects(401), "terminal", "firm", "ws.py handshake: ConnectionError(status_code=401)"
    yield "refused", lambda: Client.connect(S.refused().replace("http", "ws")), "transient", "firm", "ConnectionRefusedError"
