"""Changes a letter's message: assignments (``--set``), callables (``--transform``) and other routes for a
redrive, and edits by hand.

A letter and orders enter; the changed letter and a readable diff leave. Nothing is published or stored here.
"""
