"""Letters, and retries that wait: saved, read, found, counted, closed, parked and released.

Failures, outcomes and filters enter; letters, pages and counts leave. It does not know how a redrive sends a
message.
"""
