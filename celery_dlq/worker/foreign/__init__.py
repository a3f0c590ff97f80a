"""Messages that never become a request: of an unknown task, undecodable, or malformed.

They enter from the handlers of Celery's consumer and leave as letters for ``writing``; then Celery goes on.
To make a letter, nothing in a message is unpickled.
"""
