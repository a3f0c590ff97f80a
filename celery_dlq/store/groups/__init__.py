"""Groups of letters with one fingerprint: listed, read, triaged by people, and given tickets by handlers.

Filters, fingerprints and decisions enter; groups leave. It does not know single letters, except for the
releases in which they failed.
"""
