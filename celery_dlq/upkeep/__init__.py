"""Upkeep by workers: releases parked retries, runs the redrives that were left to workers, begins automatic
redrives, gives dead letters to the user's repair handlers, and removes expired letters.

Each subject has a thread (``step.py`` starts them, ``periodic.py`` is their base). For most of them, one
worker at a time holds a lease. Due retries and planned operations enter from the store; messages leave to the
broker. The room knows the store by its type, and shares no state with the consumer of tasks; only the watch
for stalls, which runs in each worker, reads the consumer's counters.
"""
