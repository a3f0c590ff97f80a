"""Turns messages of a broker's own dead-letter queue into letters.

Messages enter; letters go to the store, and only then are the messages removed from the broker. The room
knows the store by its type, and declares no queue.
"""
