import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "nflx-genie-client==3.6.19"
import pygenie.utils as U, pygenie
from pygenie.exceptions import JobTimeoutError
def call(url, **k): return U.call(url + "/api/v3/jobs/1", attempts=1, backoff=0, timeout=0.3, **k)
def a(status): return lambda: call(S.http(status, "{}"))
def job_timeout(): raise JobTimeoutError("Timed out after 1 seconds")
def no_job():
    from pygenie.adapter.genie_3 import Genie3Adapter
    from pygenie.conf import GenieConf
    c = GenieConf(); c.genie.url = S.http(404, "{}")
    Genie3Adapter(conf=c).get("1", timeout=1)
def cases():
    yield "503", a(503), "transient", "firm", "utils.py call: GenieHTTPError(response), attempts with backoff"
    yield "429", a(429), "transient", "firm", "utils.py call: GenieHTTPError(response)"
    yield "timeout", lambda: call(S.silent()), "transient", "firm", "utils.py call: raise errors[-1], requests Timeout"
    yield "refused", lambda: call(S.refused()), "transient", "firm", "utils.py call: raise errors[-1], requests ConnectionError"
    yield "401", a(401), "terminal", "firm", "utils.py call: GenieHTTPError(response)"
    yield "412", a(412), "terminal", "firm", "utils.py call: GenieHTTPError(response); Genie answers 412 for a bad job request"
    yield "job not found", no_job, "terminal", "firm", "genie_3.py GenieJobNotFoundError"
    yield "job runs too long", job_timeout, "transient", "soft", "exceptions.py JobTimeoutError: a job runs longer than a timeout; constructed as jobs/running.py wait()"
