"""Chords that a letter's task belonged to: whether they can still complete, and how a failed member is
uncounted before it is sent again.

Letters and their decoded payloads enter; the reason why a chord cannot complete leaves, and the result
backend is changed. Only this room talks to result backends. It does not know the store or the broker.
"""
