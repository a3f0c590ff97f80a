"""Judges an exception from its text.

A pasted or stored traceback enters, and is parsed into synthetic exceptions. Today's rules judge these; their
verdict leaves, with a list of the evidence that a text cannot show. No module that a text names is imported.
"""
