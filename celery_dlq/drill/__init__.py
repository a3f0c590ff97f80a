"""A drill: what can happen to a message in production is done on purpose to messages of its own, on the
user's broker, database and settings.

An app enters; an account leaves: how each message ended, how long it took, and which setting closes a gap. A
drill has a queue, tables, files and worker processes of its own, and removes them at its end. It starts from
the command line, in a process of its own.
"""
