"""pyescrypt hashes passwords in the process: every error is an error of the input (terminal)."""

LIBRARY = "pyescrypt==0.1.0"


def compare(password, hashed=None, **other):
    import pyescrypt

    hasher = pyescrypt.Yescrypt(n=2**6, r=1, p=1, mode=pyescrypt.Mode.JSON)
    hashed = hashed or hasher.digest(b"right", b"salt")
    pyescrypt.Yescrypt(**{"n": 2**6, "r": 1, "p": 1, "mode": pyescrypt.Mode.JSON, **other}).compare(
        password, hashed
    )


def cases():
    yield (
        "password is wrong",
        lambda: compare(b"wrong"),
        "terminal",
        "firm",
        "pyescrypt.py:361 WrongPassword",
    )
    yield (
        "hash has other parameters",
        lambda: compare(b"right", n=2**7),
        "terminal",
        "firm",
        "pyescrypt.py:329 WrongPasswordConfiguration",
    )
    yield (
        "hash is of another format",
        lambda: compare(b"right", b"$y$j9T$abc"),
        "terminal",
        "firm",
        "pyescrypt.py:315 ValueError: MCF string passed to a JSON instance",
    )
