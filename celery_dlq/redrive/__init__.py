"""Sends dead letters back to their queues.

A filter and orders enter. A plan leaves, and then an operation, whose letters are claimed, repaired, checked,
published, confirmed and marked, at a pace and under a guard. The room knows the store by its protocols and
the broker through kombu; it knows nothing of workers and screens.
"""
