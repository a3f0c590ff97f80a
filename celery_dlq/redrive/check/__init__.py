"""Decides whether a letter can be sent, and should be: its queue, its task, its age and redrives, its
chord, and its arguments against the task's signature.

Letters enter; the reason why each must not be sent leaves, if there is one. Nothing here changes a letter or
the store.
"""
