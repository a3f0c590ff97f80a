"""Stub servers for the cases of the set dev. Each function starts a daemon thread and returns an address."""
import asyncio, contextlib, http.server, pathlib, socket, ssl, struct, subprocess, threading
import os
for k in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"): os.environ.pop(k, None)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
CERT = pathlib.Path("/tmp/survey/dev-cert.pem")

def _cert():
    if not CERT.exists():
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(CERT)+".key", "-out", str(CERT)], check=True, capture_output=True)
    return str(CERT), str(CERT)+".key"

def http(status=200, body="", headers=None, ctype="application/json", tls=False, by_path=None):
    """An HTTP server that gives one answer to all (or by_path: {"part of the path": (status, body, headers)}). Returns its base URL."""
    class H(http_mod.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def do(self):
            n = int(self.headers.get("Content-Length") or 0); self.rfile.read(n)
            st, b, h = status, body, headers or {}
            for part, answer in (by_path or {}).items():
                if part in self.path: st, b, h = answer; break
            b = b.encode() if isinstance(b, str) else b
            self.send_response(st)
            names = {k.lower() for k in h}
            if "content-type" not in names: self.send_header("Content-Type", ctype)
            for k, v in h.items(): self.send_header(k, v)
            self.send_header("Content-Length", str(len(b))); self.send_header("Connection", "close"); self.end_headers()
            if self.command != "HEAD": self.wfile.write(b)
            self.close_connection = True
        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = do
        def log_message(self, *a): pass
    class S(http_mod.ThreadingHTTPServer):
        daemon_threads = True
        def handle_error(self, *a): pass
    s = S(("127.0.0.1", 0), H)
    if tls:
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(*_cert()); s.socket = c.wrap_socket(s.socket, server_side=True)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return f"http{'s' if tls else ''}://127.0.0.1:{s.server_address[1]}"
http_mod = __import__("http.server").server

def closed_port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return p
def refused(): return f"http://127.0.0.1:{closed_port()}"

def tcp(handler):
    """A TCP server; handler(connection) in a thread. Returns the port."""
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(20)
    def run():
        while True:
            c, _ = s.accept(); threading.Thread(target=handler, args=(c,), daemon=True).start()
    threading.Thread(target=run, daemon=True).start()
    return s.getsockname()[1]
def _reset(c):
    c.recv(10); c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); c.close()
def _hang(c):
    threading.Event().wait(60)
def _close(c):
    c.recv(65536); c.shutdown(socket.SHUT_RDWR); c.close()
def reset(): return f"http://127.0.0.1:{tcp(_reset)}"
def silent(): return f"http://127.0.0.1:{tcp(_hang)}"
def hangup(): return f"http://127.0.0.1:{tcp(_close)}"

@contextlib.contextmanager
def no_such_host():
    """The answer of a resolver for a name that does not exist, whatever the network of this machine does."""
    real = socket.getaddrinfo
    def fake(host, *a, **k):
        if str(host).endswith(".invalid"): raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *a, **k)
    socket.getaddrinfo = fake
    try: yield
    finally: socket.getaddrinfo = real
def run(coroutine): return asyncio.run(coroutine)
