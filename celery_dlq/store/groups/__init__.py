"""Groups of letters with one fingerprint: listed, read, and triaged by people.

Filters, fingerprints and decisions enter; groups leave. It does not know single letters, except for the
releases in which they failed.
"""
