"""Metrics for Prometheus: of the store, and of a worker.

The store's rollups and a worker's events enter; samples leave through ``prometheus_client``. Only the modules
that pass samples to that library import it, so everything else works without the extra.
"""
