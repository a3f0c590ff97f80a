"""Runs in the process that runs a task's body. It answers an exception of the body, by a retry or by the
death of the message.

Exceptions enter from ``DLQTask.__call__``. A retry goes to the broker, or travels with the end of the run;
the end goes to the worker's parent as a ``RunEnd``. This room knows neither the store nor a request.
"""
