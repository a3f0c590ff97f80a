"""The values that travel between the rooms: a letter, a group, an operation, a delivery, a circuit, and
their states.

Everything here is frozen, typed and free of frameworks. Nothing in this room reads a store, a broker or a
clock.
"""
