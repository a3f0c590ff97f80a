"""The part of the store that redrives are made with: operations, claims, sendings and their outcomes, edits,
the audit and its pruning.

Operations, filters and marks enter; claims, sendings and counts leave. It does not know brokers, or how a
message is sent.
"""
