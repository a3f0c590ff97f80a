import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "pywatchman==4.0.0"
import os, pathlib, socket, tempfile, threading, json, time
import pywatchman
def server(answer):
    p = tempfile.mktemp(suffix=".sock"); s = socket.socket(socket.AF_UNIX); s.bind(p); s.listen(5)
    def f():
        c, _ = s.accept(); c.recv(9999)
        if answer is None: time.sleep(5)
        elif answer: c.sendall(json.dumps(answer).encode() + b"\n")
        c.close()
    threading.Thread(target=f, daemon=True).start(); return p
def q(path): return pywatchman.client(sockpath=path, transport="local", sendEncoding="json", recvEncoding="json", timeout=0.3).query("watch-project", "/x")
def dead():
    p = tempfile.mktemp(suffix=".sock"); s = socket.socket(socket.AF_UNIX); s.bind(p); s.close(); return q(p)
def unpath():
    old = os.environ["PATH"]; os.environ["PATH"] = "/nonexistent"
    try: pywatchman.client(binpath="watchman").query("version")
    finally: os.environ["PATH"] = old
def cases():
    yield "no answer in time", lambda: q(server(None)), "transient", "firm", "__init__.py SocketTimeout: socket timeouts during communication"
    yield "daemon refuses connections", dead, "transient", "firm", "__init__.py SocketConnectError of ConnectionRefusedError"
    yield "daemon closes the connection", lambda: q(server("")), "transient", "firm", "__init__.py WatchmanError('empty watchman response'): end of file from the daemon"
    yield "unable to resolve root", lambda: q(server({"error": "unable to resolve root /x: directory /x does not exist"})), "terminal", "firm", "__init__.py CommandError"
    yield "unknown command", lambda: q(server({"error": "unknown command 'foo'"})), "terminal", "firm", "__init__.py CommandError"
    yield "no watchman program", unpath, "terminal", "firm", "__init__.py WatchmanError('watchman executable not in PATH')"
