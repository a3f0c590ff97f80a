"""The URLs that an archive may have."""

from __future__ import annotations

#: The schemes of places that keep files for ever, each with the package that fsspec needs for it.
PACKAGES = {
    "file": "",
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}


def is_archive_url(value: str) -> bool:
    """Whether ``value`` names a place for an archive: a known scheme with a bucket, or a whole path."""
    scheme, rest = _split(value)
    if scheme == "file":
        return rest.startswith("/") and bool(rest.strip("/"))
    # A chain of fsspec, such as simplecache::s3://…, would read back its own copy.
    return scheme in PACKAGES and "::" not in rest and bool(rest.strip("/"))


def archive_package(url: str) -> str:
    """The package that the scheme of ``url`` needs; empty if it needs none."""
    return PACKAGES.get(_split(url)[0], "")


def _split(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (scheme, rest) if separator else ("", url)
