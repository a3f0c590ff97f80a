"""Automations: letters that are chosen by a filter, within limits, and what is done about them by itself.

There are two kinds, with one engine, one lease and one record in the store. An automatic redrive
(``definition.py``) sends its letters back with ordinary operations, which the upkeep of operations runs. For
a handler (``handler.py``), a function of the user, a message is sent for each letter; a worker that consumes
its queue calls the function, and the store carries out its verdict (``calling.py``). The store knows how far
each letter has come, so processes may be killed, and messages may be lost, doubled or late.
"""
