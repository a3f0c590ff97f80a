import shutil
import ssl
import subprocess
import threading

import pytest
from support.servers.local_servers import Server, Told
from support.servers.ports import free_port


@pytest.fixture
def closed_port():
    """A port of this machine on which nothing listens."""
    return free_port()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def serve():
    servers = []

    def start(handler, manner=None, context=None, told=None):
        server = Server(("127.0.0.1", 0), handler)
        server.manner, server.told = manner, told
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def served(serve):
    """Starts a server that gives the same answer to every request; returns its URL."""

    def start(answer):
        return f"http://{serve(Told, told=answer)}"

    return start


@pytest.fixture(scope="session")
def self_signed(tmp_path_factory):
    """A server context with a certificate that no client trusts."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.fixture(scope="session")
def django(tmp_path_factory):
    """Django with a SQLite database that does not wait for locks."""
    library = pytest.importorskip("django")
    from django.conf import settings

    path = tmp_path_factory.mktemp("django") / "shop.sqlite3"
    options = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": {"timeout": 0}}
    if not settings.configured:
        settings.configure(DATABASES={"default": options}, USE_I18N=False, USE_TZ=True)
        library.setup()
    return library
