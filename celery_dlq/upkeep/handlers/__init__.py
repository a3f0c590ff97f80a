"""Repair handlers: functions of the user that decide about dead letters.

One worker at a time chooses letters and sends a message for each (``dispatcher.py``). A worker that consumes
the queue of handlers calls the handler (``calling.py``), and the store carries out its verdict. The store
knows how far each handling has come, so messages may be lost, doubled or late. An app without handlers
imports none of this.
"""
