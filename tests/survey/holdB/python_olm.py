"""python-olm encrypts in the process: every error is an error of the input (terminal)."""

LIBRARY = "python-olm==3.2.16"


def unpickle():
    import olm

    olm.Account.from_pickle(olm.Account().pickle("right"), "wrong")


def inbound():
    import olm

    olm.InboundSession(olm.Account(), olm.OlmPreKeyMessage("no message"))


def group():
    import olm

    out = olm.OutboundGroupSession()
    inbound = olm.InboundGroupSession(out.session_key)
    inbound.decrypt(olm.OutboundGroupSession().encrypt("text"))


def verify():
    import olm

    account = olm.Account()
    olm.ed25519_verify(account.identity_keys["ed25519"], "other text", account.sign("text"))


def cases():
    yield (
        "pickle has another passphrase",
        unpickle,
        "terminal",
        "firm",
        "olm/account.py:96 OlmAccountError BAD_ACCOUNT_KEY",
    )
    yield ("message is not base64", inbound, "terminal", "firm", "olm/session.py:149 OlmSessionError")
    yield (
        "message is of another group session",
        group,
        "terminal",
        "firm",
        "olm/group_session.py:176 OlmGroupSessionError",
    )
    yield (
        "signature does not match",
        verify,
        "terminal",
        "firm",
        "olm/utility.py OlmVerifyError BAD_MESSAGE_MAC",
    )
