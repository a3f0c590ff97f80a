"""ccxt: ccxt/base/errors.py. Its tree parts what may pass (OperationFailed) from what will not."""

from celery_dlq.classify.table import network, terminal, transient, within

ROWS = (
    # Raised on top of the HTTP library's error, with it as the cause.
    network("ccxt.network", "ccxt.base.errors.NetworkError"),
    transient("ccxt.failed", "ccxt.base.errors.OperationFailed"),
    # A nonce or a checksum that the exchange does not take is wrong the next time as well.
    terminal("ccxt.rejected", *within("ccxt.base.errors", "InvalidNonce BaseError")),
)
