"""The work of repair handlers: which letters they get, what they decided, and the tickets of
groups.

A dispatcher chooses letters and sends messages. A worker starts a handling and ends it with a verdict, which
is carried out in the transaction that ends it.
"""
