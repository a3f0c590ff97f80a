"""The part of the store that redrives use: operations, claims, sendings and their outcomes, edits, and the
history of acts.

Operations, filters and marks enter; claims, sendings and counts leave. It does not know brokers, or how a
message is sent.
"""
