"""Numbers for Prometheus: of the store, wherever something asks for them, and of a worker.

Only the modules that hand numbers to ``prometheus_client`` import it, so that everything else works
without the extra.
"""
