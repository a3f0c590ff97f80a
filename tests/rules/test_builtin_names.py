"""The names in the built-in table exist in the libraries."""

import importlib
import pkgutil

import pytest

from celery_dlq.classify.builtin.known import ROWS, TABLE

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


# Libraries warn when they are imported.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("domain", ROWS)
def test_listed_names_resolve_to_classes_that_the_table_knows(domain):
    problems = [
        problem for row in ROWS[domain] for name in row.names if (problem := _problem(name, row))
    ]
    assert problems == []


def _problem(name, row):
    """The mistake in the table about this name; empty if there is none, or the library is not installed."""
    try:
        importlib.import_module(name.partition(".")[0])
        if name.endswith(".*"):
            importlib.import_module(name.removesuffix(".*"))
            return ""
        found = pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            return ""
        return _unless_known(name)
    except AttributeError:
        return _unless_known(name)
    if not issubclass(found, BaseException):
        return f"{name} is not an exception"
    # By rule, since some names are aliases: socket.timeout is the built-in TimeoutError by now.
    rules = [match.row.rule for match in TABLE.look_up(found).matches]
    return "" if row.rule in rules else f"{name} is judged by {rules}, not by {row.rule}"


def _unless_known(name):
    known = name in _RECENT | _FORMER | _FORKED or name.startswith(_OTHER_VERSIONS)
    return "" if known else f"{name} does not exist; correct the table"
