"""waybackpy speaks to web.archive.org. Its requests go to a stub on 127.0.0.1."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "waybackpy==3.0.6"


def save(base, **kwargs):
    from waybackpy import WaybackMachineSaveAPI

    with stub.no_sleep(), stub.requests_to(base):
        WaybackMachineSaveAPI("https://example.com", **kwargs).save()


def newest(base):
    from waybackpy import WaybackMachineCDXServerAPI

    with stub.no_sleep(), stub.requests_to(base):
        WaybackMachineCDXServerAPI("https://example.com").newest()


def available(base):
    from waybackpy import WaybackMachineAvailabilityAPI

    with stub.no_sleep(), stub.requests_to(base):
        WaybackMachineAvailabilityAPI("https://example.com").newest().archive_url


def bad_filter():
    from waybackpy import WaybackMachineCDXServerAPI

    WaybackMachineCDXServerAPI("https://example.com", filters=["status=200"])


BLOCKED = (
    "org.archive.util.io.RuntimeIOException: org.archive.wayback.exception."
    "AdministrativeAccessControlException: Blocked Site Error"
)


def cases():
    yield (
        "too many saves (429)",
        lambda: save(stub.answer(429)),
        "transient",
        "firm",
        (
            "waybackpy/exceptions.py TooManyRequestsError; save_api.py:99 'Try waiting for 5 minutes and then"
            " try again'"
        ),
    )
    yield (
        "limit of active sessions (509)",
        lambda: save(stub.answer(509)),
        "transient",
        "firm",
        (
            "waybackpy/save_api.py:110 'You have probably reached the limit of active sessions': sessions end"
            " by themselves"
        ),
    )
    yield (
        "save not confirmed after all tries",
        lambda: save(stub.answer(200, "<html></html>"), max_tries=2),
        "transient",
        "soft",
        "waybackpy/save_api.py:220 MaximumSaveRetriesExceeded; 'the save API is known to be very unreliable'",
    )
    yield (
        "CDX server answers 503",
        lambda: newest(stub.answer(503)),
        "transient",
        "firm",
        (
            "waybackpy/cdx_utils.py:88 status_forcelist=[500, 502, 503, 504]: requests RetryError after the"
            " retries"
        ),
    )
    yield (
        "availability API answers an HTML page of error 502",
        lambda: available(stub.answer(502, "<html><h1>502 Bad Gateway</h1></html>")),
        "transient",
        "soft",
        "waybackpy/availability_api.py:113 InvalidJSONInAvailabilityAPIResponse with the page as the text",
    )
    yield (
        "site is excluded by robots.txt",
        lambda: newest(stub.answer(200, BLOCKED)),
        "terminal",
        "firm",
        "waybackpy/exceptions.py BlockedSiteError: the site was excluded from the Wayback Machine",
    )
    yield (
        "no archive of the address",
        lambda: newest(stub.answer(200, "")),
        "terminal",
        "soft",
        "waybackpy/exceptions.py NoCDXRecordFound; the text says it may also be archived recently",
    )
    yield (
        "a filter with bad syntax",
        bad_filter,
        "terminal",
        "firm",
        "waybackpy/cdx_utils.py:128 WaybackError: the filter does not follow the syntax (illegal arguments)",
    )
