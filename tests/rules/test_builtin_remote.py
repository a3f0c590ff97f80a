"""Mail, FTP, SSH and DNS clients against local servers that give the answers of the test."""

import asyncio
import ftplib
import gc
import imaplib
import logging
import poplib
import smtplib
import socketserver
import threading
from contextlib import closing, contextmanager

import pytest
from support.errors.libraries import library
from support.errors.verdicts import judge, raised
from support.servers.ports import free_port

TIMEOUT_S = 60

# Clients that were refused leave their sockets, and paramiko its thread's error, to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::pytest.PytestUnhandledThreadExceptionWarning",
)


@pytest.fixture(autouse=True, scope="module")
def collected():
    """Once for all tests: each time, half a second goes into the modules that other tests have loaded."""
    yield
    gc.collect()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def server(*lines, mute=False):
    """The port of a server that says one line at once, and one for each line that it gets.

    Then it hangs up, or says nothing more if it is ``mute``.
    """
    done = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for position, line in enumerate(lines):
                tag = self.rfile.readline().split(b" ")[0] if position else b""
                self.wfile.write(line.replace(b"TAG", tag) + b"\r\n")
                self.wfile.flush()
            if mute:
                done.wait()

    with _Server(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield listening.server_address[1]
        finally:
            done.set()
            listening.shutdown()
            thread.join()


# -- SMTP -------------------------------------------------------------------------------------------

HELLO = (b"220 ready", b"250 hello")


def by_smtplib(port):
    with closing(smtplib.SMTP("127.0.0.1", port, timeout=TIMEOUT_S)) as client:
        client.sendmail("a@x", ["b@x"], "text")


def by_aiosmtplib(port):
    aiosmtplib = library("aiosmtplib")

    async def send():
        client = aiosmtplib.SMTP(
            hostname="127.0.0.1", port=port, timeout=TIMEOUT_S, use_tls=False, start_tls=False
        )
        await client.connect()
        try:
            await client.sendmail("a@x", ["b@x"], "text")
        finally:
            client.close()

    asyncio.run(send())


SMTP = {
    "busy at once": ([b"421 too busy"], "transient", "smtp.reply"),
    "refused at once": ([b"554 no service here"], "terminal", "smtp.reply"),
    "hangs up": ([b"220 ready"], "transient", "smtp.closed"),
    "sender, later": ([*HELLO, b"451 later", b"250 ok"], "transient", "smtp.reply"),
    "sender, never": ([*HELLO, b"550 no", b"250 ok"], "terminal", "smtp.reply"),
    "recipient, later": (
        [*HELLO, b"250 ok", b"450 greylisted", b"250 ok"],
        "transient",
        "smtp.reply",
    ),
    "recipient, never": ([*HELLO, b"250 ok", b"550 unknown", b"250 ok"], "terminal", "smtp.reply"),
    "data, later": (
        [*HELLO, b"250 ok", b"250 ok", b"452 full", b"250 ok"],
        "transient",
        "smtp.reply",
    ),
    "data, bad sequence": (
        [*HELLO, b"250 ok", b"250 ok", b"503 bad sequence", b"250 ok"],
        "terminal",
        "smtp.reply",
    ),
}


@pytest.mark.parametrize("client", [by_smtplib, by_aiosmtplib])
@pytest.mark.parametrize("name", SMTP)
def test_smtp(client, name):
    lines, verdict, rule = SMTP[name]
    with server(*lines) as port:
        assert judge(raised(client, port)) == (verdict, rule)


@pytest.mark.parametrize("client", [by_smtplib, by_aiosmtplib])
def test_no_mail_server(client):
    assert judge(raised(client, free_port()))[0] == "transient"


@pytest.mark.parametrize(
    ("reply", "verdict"), [(b"535 wrong", "terminal"), (b"454 later", "transient")]
)
def test_smtp_login(reply, verdict):
    with server(b"220 ready", b"250-hello\r\n250 AUTH PLAIN", reply, reply, reply) as port:
        client = smtplib.SMTP("127.0.0.1", port, timeout=TIMEOUT_S)
        with closing(client):
            assert judge(raised(client.login, "a", "b")) == (verdict, "smtp.reply")


def test_smtp_without_tls_support():
    with server(*HELLO) as port, closing(smtplib.SMTP("127.0.0.1", port)) as client:
        assert judge(raised(client.starttls)) == ("terminal", "smtp.unsupported")


# -- FTP, POP, IMAP ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b"421 too many"], ("transient", "ftp.reply")),
        ([b"220 ready", b"530 no"], ("terminal", "ftp.reply")),
        ([b"220 ready", b"331 password", b"530 no"], ("terminal", "ftp.reply")),
        ([b"220 ready", b"430 busy"], ("transient", "ftp.reply")),
        ([b"nonsense"], ("terminal", "ftp.reply")),
        ([b"220 ready", b"100 what"], ("terminal", "ftp.reply")),
    ],
)
def test_ftp(lines, expected):
    def login(port):
        with closing(ftplib.FTP(timeout=TIMEOUT_S)) as client:
            client.connect("127.0.0.1", port)
            client.login("a", "b")

    with server(*lines) as port:
        assert judge(raised(login, port)) == expected


@pytest.mark.parametrize(
    ("reply", "verdict"), [(b"421 busy", "transient"), (b"530 no", "terminal")]
)
def test_aioftp(reply, verdict):
    aioftp = library("aioftp")

    async def connect(port):
        client = aioftp.Client(socket_timeout=TIMEOUT_S)
        try:
            await client.connect("127.0.0.1", port)
        finally:
            client.close()

    with server(reply) as port:
        assert judge(raised(lambda: asyncio.run(connect(port)))) == (verdict, "ftp.reply")


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([b"-ERR [SYS/TEMP] later"], "transient"),
        ([b""], "terminal"),
        ([], "transient"),
        ([b"+OK ready", b"-ERR [IN-USE] somebody reads it"], "transient"),
        ([b"+OK ready", b"-ERR [AUTH] no"], "terminal"),
        ([b"+OK ready", b"-ERR no"], "terminal"),
    ],
)
def test_pop(lines, verdict):
    def login(port):
        with closing(poplib.POP3("127.0.0.1", port, timeout=TIMEOUT_S)) as client:
            client.user("a")

    with server(*lines) as port:
        assert judge(raised(login, port)) == (verdict, "pop.reply")


IMAP = (b"* OK ready", b"* CAPABILITY IMAP4REV1\r\nTAG OK done")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([*IMAP, b"TAG NO [AUTHENTICATIONFAILED] no"], ("terminal", "imap.error")),
        ([*IMAP, b"TAG NO [UNAVAILABLE] later"], ("transient", "imap.error")),
        ([*IMAP, b"TAG BAD what"], ("terminal", "imap.error")),
        ([*IMAP], ("transient", "imap.abort")),
        ([b"* OK ready"], ("transient", "imap.abort")),
        ([b"* BYE busy"], ("terminal", "imap.error")),
    ],
)
def test_imap(lines, expected):
    def login(port):
        client = imaplib.IMAP4("127.0.0.1", port, timeout=TIMEOUT_S)
        with closing(client.sock):
            client.login("a", "b")

    with server(*lines) as port:
        assert judge(raised(login, port)) == expected


# -- SSH --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def by_paramiko(port, **options):
    paramiko = library("paramiko")
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    with closing(client):
        client.connect(
            "127.0.0.1", port, username="a", password="b", timeout=TIMEOUT_S, banner_timeout=TIMEOUT_S,
            allow_agent=False, look_for_keys=False, **options,
        )  # fmt: skip
        client.open_sftp()


def by_asyncssh(port, **options):
    asyncssh = library("asyncssh")

    async def connect():
        async with asyncssh.connect(
            "127.0.0.1", port, username="a", password="b", client_keys=[], agent_path=None, config=[],
            **{"known_hosts": None, **options},
        ) as connection:  # fmt: skip
            await connection.run("true", check=True)

    asyncio.run(connect())


def test_no_ssh_server():
    port = free_port()
    assert judge(raised(by_paramiko, port)) == ("transient", "ssh.connect")
    assert judge(raised(by_asyncssh, port)) == ("transient", "os.network")


def test_an_ssh_server_that_hangs_up():
    with server() as port:
        assert judge(raised(by_paramiko, port)) == ("transient", "ssh.closed")
        assert judge(raised(by_asyncssh, port))[0] == "transient"


@contextmanager
def ssh_server(**options):
    """The port of a real SSH server, run by asyncssh in a thread."""
    asyncssh = library("asyncssh")
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), []

    class Server(asyncssh.SSHServer):
        def password_auth_supported(self):
            return True

        def validate_password(self, username, password):
            return options.get("password") == password

    async def serve():
        listening = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            process_factory=lambda process: process.exit(options.get("exit", 0)),
            **options.get("listen", {}),
        )  # fmt: skip
        ports.append(listening.sockets[0].getsockname()[1])
        ready.set()
        await stopping.wait()
        listening.close()
        await listening.wait_closed()

    stopping = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


def test_ssh_answers():
    with ssh_server(password="other") as port:
        assert judge(raised(by_paramiko, port))[0] == "terminal"
        assert judge(raised(by_asyncssh, port)) == ("terminal", "ssh.disconnect")
        exc = raised(by_asyncssh, port, known_hosts=([], [], []))
        assert judge(exc) == ("terminal", "ssh.disconnect")
    with ssh_server(password="b", exit=3) as port:
        assert judge(raised(by_paramiko, port))[0] == "terminal"
        assert judge(raised(by_asyncssh, port)) == ("terminal", "ssh.command")


# -- DNS --------------------------------------------------------------------------------------------


@contextmanager
def name_server(rcode):
    """The port of a server that answers every question with ``rcode``; None says nothing."""
    message = library("dns.message")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            data, sock = self.request
            if rcode is not None:
                answer = message.make_response(message.from_wire(data))
                answer.set_rcode(rcode)
                sock.sendto(answer.to_wire(), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield listening.server_address[1]
        finally:
            listening.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("rcode", "expected"),
    [
        (3, ("terminal", "dns.lookup")),
        (0, ("terminal", "dns.lookup")),
        (2, ("transient", "dns.servers")),
        (None, ("transient", "dns.timeout")),
    ],
)
def test_dns(rcode, expected):
    resolver = library("dns.resolver").Resolver(configure=False)
    with name_server(rcode) as port:
        resolver.nameservers, resolver.port, resolver.lifetime = ["127.0.0.1"], port, 0.2
        assert judge(raised(resolver.resolve, "shop.example.")) == expected


def test_names_that_are_not_valid():
    assert judge(raised(library("dns.name").from_text, "a..b")) == ("terminal", "dns.error")


# -- directories, terminals -------------------------------------------------------------------------


def test_ldap():
    ldap3 = library("ldap3")

    def bind(port):
        address = ldap3.Server("127.0.0.1", port, connect_timeout=TIMEOUT_S)
        ldap3.Connection(address, raise_exceptions=True).bind()

    assert judge(raised(bind, free_port())) == ("transient", "ldap.network")
    result = library("ldap3.core.exceptions").LDAPOperationResult
    for code, expected in {
        51: ("transient", "ldap.busy"),
        52: ("transient", "ldap.busy"),
        49: ("terminal", "ldap.error"),
        32: ("terminal", "ldap.error"),
    }.items():
        assert judge(result(result=code)) == expected


def test_terminals():
    pexpect = library("pexpect")
    with closing(pexpect.spawn("cat")) as child:
        assert judge(raised(child.expect, "never", timeout=0)) == (
            "transient",
            "subprocess.timeout",
        )
    with closing(pexpect.spawn("true")) as child:
        assert judge(raised(child.expect, "never")) == ("terminal", "subprocess.failed")


def test_invoke():
    invoke = library("invoke")
    exc = raised(invoke.run, "exit 3", hide=True, in_stream=False)
    assert judge(exc) == ("terminal", "subprocess.failed")
