"""Ready repair handlers that open one ticket for each group of letters, in other systems.

A letter enters, and a verdict leaves: the address of the group's ticket. ``services.py`` is the table of the
systems, ``engine.py`` does what is the same for all, and ``text.py`` has the words of a ticket. Apps import
this package themselves; celery_dlq does not.
"""

from celery_dlq.tickets.services import GitHubIssues, GitLabIssues, JiraIssues

__all__ = ["GitHubIssues", "GitLabIssues", "JiraIssues"]
