"""The names in the built-in table exist in the libraries."""

import pkgutil

import pytest

from celery_dlq.classify.builtin import TABLE

NAMES = [(name, row) for row in TABLE.rows for name in row.names]

# Only some versions of the supported libraries, and of Python, have these.
_RECENT = {
    "pyrate_limiter.exceptions.BucketFullException",
    "pyrate_limiter.exceptions.LimiterDelayException",
    "re.PatternError",
    "re.error",
    "aiohttp.client_exceptions.NonHttpUrlClientError",
    "builtins.BaseExceptionGroup",
    "filelock._core._errors.Timeout",
    "kombu.exceptions.BatchPublishError",
    "mysql.connector.errors.ConnectionTimeoutError",
    "mysql.connector.errors.ReadTimeoutError",
    "mysql.connector.errors.WriteTimeoutError",
    "psycopg.errors.CancellationTimeout",
    "redis.exceptions.OutOfMemoryError",
}

# Only older versions have these.
_FORMER = {
    "filelock._error.Timeout",
    "telegram.error.TelegramDecryptionError",
    "telegram.error.Unauthorized",
}


# Only ScyllaDB's fork of the driver has these.
_FORKED = {"cassandra.RateLimitReached", "cassandra.protocol.RateLimitReachedException"}


# Modules that only other versions of their libraries have, or that need an extra of theirs.
_OTHER_VERSIONS = (
    "confluent_kafka.schema_registry.",
    "duckdb.",
    "elasticsearch.exceptions.",
    "elasticsearch.helpers.errors.",
    "pymssql._pymssql.",
    "huggingface_hub.utils._errors.",
    "openai.error.",
    "stripe.error.",
    "urllib3.packages.",
)


@pytest.mark.filterwarnings("ignore:slack.* is deprecated:UserWarning")
@pytest.mark.filterwarnings("ignore:websockets.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("name", "row"), NAMES, ids=[name for name, _ in NAMES])
def test_listed_names_resolve_to_classes_that_the_table_knows(name, row):
    pytest.importorskip(name.partition(".")[0])
    try:
        found = pkgutil.resolve_name(name)
    except (AttributeError, ModuleNotFoundError):
        known = name in _RECENT | _FORMER | _FORKED or name.startswith(_OTHER_VERSIONS)
        assert known, f"{name} does not exist; correct the table"
        return
    assert issubclass(found, BaseException)
    # By rule, since some names are aliases: socket.timeout is the built-in TimeoutError by now.
    assert row.rule in [match.row.rule for match in TABLE.look_up(found).matches]
