"""Hugging Face: huggingface_hub/errors.py, before version 0.25 huggingface_hub/utils/_errors.py."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import probed, terminal, transient, within, wrapper

ROWS = (
    probed(
        "http.status",
        http_status(("response", "status_code")),
        "response.status_code",
        "huggingface_hub.errors.HfHubHTTPError",
        "huggingface_hub.utils._errors.HfHubHTTPError",
    ),
    # huggingface_hub/inference/_common.py: 503 and 429 of an inference server, as words.
    transient("huggingface.overloaded", "huggingface_hub.errors.OverloadedError"),
    transient(
        "huggingface.timeout",
        *within("huggingface_hub.errors", "InferenceTimeoutError InferenceEndpointTimeoutError"),
    ),
    terminal(
        "huggingface.inference",
        *within("huggingface_hub.errors", "TextGenerationError InferenceEndpointError"),
    ),
    # Not in the cache, and the hub could not be asked: why not is the cause.
    wrapper(
        "huggingface.cache",
        "why the hub could not be asked",
        "huggingface_hub.errors.LocalEntryNotFoundError",
        "huggingface_hub.utils._errors.LocalEntryNotFoundError",
    ),
    # A ConnectionError and a plain OSError, but settings both.
    terminal(
        "huggingface.usage",
        *within(
            "huggingface_hub.errors",
            "OfflineModeIsEnabled LocalTokenNotFoundError FileMetadataError DryRunError "
            "EntryNotFoundError IncompleteSnapshotError",
        ),
        "huggingface_hub.utils._http.OfflineModeIsEnabled",
    ),
)
