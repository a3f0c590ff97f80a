"""Upkeep by workers: releases parked retries, runs the redrives that were left to workers, begins automatic
redrives, and gives dead letters to the user's repair handlers.

One worker at a time holds the lease. Due retries and planned operations enter from the store; messages leave
to the broker. It knows the store by its protocol, and shares no state with the consumer of tasks; only the
watch for stalls, which runs in each worker, reads the consumer's counters.
"""
