"""How workers agree through the store: leases, circuits, and the deliveries of messages that may be poison.

Names, changes and deliveries enter; leases, circuits and deliveries leave. It does not know letters.
"""
