"""How fast a redrive may send, and when it stops by itself: the rate and its ramp, the letters in flight, the
depths of queues, and the guard that judges outcomes.

Counts, outcomes and times enter; allowances, waits and causes leave. Nothing here knows the store; only
``depth`` asks the broker.
"""
