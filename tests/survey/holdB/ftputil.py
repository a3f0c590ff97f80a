"""ftputil against a tiny FTP server on 127.0.0.1."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "ftputil==5.2.0"


def server(special=None, welcome="220 ready"):
    """An FTP server. special: the answers by command, each overrides the default answer."""
    answers = {
        "USER": "331 password",
        "PASS": "230 logged in",
        "PWD": '257 "/"',
        "CWD": "250 ok",
        "TYPE": "200 ok",
        "QUIT": "221 bye",
        "SYST": "215 UNIX",
        "FEAT": "211 no features",
        "OPTS": "200 ok",
    }
    answers.update(special or {})

    def talk(conn):
        conn.sendall(welcome.encode() + b"\r\n")
        for line in conn.makefile("rb"):
            word = line.split()[0].decode().upper()
            if word in ("EPSV", "PASV"):
                port = stub.tcp(lambda data: stub.time.sleep(0.2))
                text = (
                    f"227 ok (127,0,0,1,{port // 256},{port % 256})"
                    if word == "PASV"
                    else f"229 ok (|||{port}|)"
                )
            else:
                text = answers.get(word, "500 unknown command")
            if text is None:
                conn.close()
                return
            conn.sendall(text.encode() + b"\r\n")

    return stub.tcp(talk)


def host(port, timeout=None):
    import ftplib
    import ftputil

    class Session(ftplib.FTP):
        def __init__(self, name, user, password):
            super().__init__(timeout=timeout or 5)
            self.connect(name, port)
            self.login(user, password)

    return ftputil.FTPHost("127.0.0.1", "user", "password", session_factory=Session)


def write(port):
    with host(port) as h:
        f = h.open("a.txt", "w")
        f.write("text")
        f.close()


def unknown():
    import ftputil

    with stub.unknown_host():
        ftputil.FTPHost("ftp.does-not-exist.example", "user", "password")


def cases():
    yield (
        "too many users (421)",
        lambda: host(server(welcome="421 Too many connections, try again later")),
        "transient",
        "firm",
        "ftputil/error.py TemporaryError: temporary FTP errors (4xx)",
    )
    yield (
        "connection refused",
        lambda: host(stub.closed_port()),
        "transient",
        "firm",
        "ftputil/error.py FtplibErrorToFTPOSError: FTPOSError from OSError (ftplib.all_errors)",
    )
    yield (
        "server does not answer",
        lambda: host(stub.silent_port(), 0.3),
        "transient",
        "firm",
        "ftputil/error.py FTPOSError from TimeoutError",
    )
    yield (
        "server closes the connection",
        lambda: host(server({"MKD": None})).mkdir("d"),
        "transient",
        "firm",
        "ftputil/error.py FTPOSError from EOFError; host.py: the server may have closed the connection",
    )
    yield (
        "file is busy (450)",
        lambda: write(server({"STOR": "450 a.txt: file busy"})),
        "transient",
        "firm",
        "ftputil/error.py FTPIOError from ftplib.error_temp; RFC 959: 450 file busy",
    )
    yield (
        "login is wrong (530)",
        lambda: host(server({"PASS": "530 Login incorrect."})),
        "terminal",
        "firm",
        "ftputil/error.py PermanentError: permanent FTP errors (5xx)",
    )
    yield (
        "directory is missing (550)",
        lambda: host(server({"CWD": "550 No such directory."})).chdir("d"),
        "terminal",
        "firm",
        "ftputil/error.py PermanentError",
    )
    yield (
        "host is unknown",
        unknown,
        "terminal",
        "firm",
        "ftputil/error.py FTPOSError from socket.gaierror (EAI_NONAME)",
    )
