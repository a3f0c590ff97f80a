"""Writes the letters of requests to the store, or to the spool. Messages are acknowledged only afterwards.

Requests and their failures enter; ``snapshot.py`` makes letters of them. Every record takes the same path:
``Desk`` -> ``Writer`` -> ``Inbox`` -> ``StoreCalls`` -> the store, in a storm through ``SaverProcess``.
If the store fails, the record goes to the spool. Then the request is called back. This room knows the store
by its protocol, and requests by their attributes. It may not know why a message ran, or what follows.
"""
