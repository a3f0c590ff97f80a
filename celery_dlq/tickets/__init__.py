"""Ready repair handlers that open one ticket for each group of letters, in other systems.

A letter enters, and a verdict leaves: the address of the group's ticket. Each system has a module;
``handler.py`` has the steps that all share, ``text.py`` what a ticket says, ``service.py`` talks to the
system. Apps import this package themselves; celery_dlq does not.
"""

from celery_dlq.tickets.github import GitHubIssues
from celery_dlq.tickets.gitlab import GitLabIssues
from celery_dlq.tickets.jira import JiraIssues
from celery_dlq.tickets.webhook import TicketWebhook

__all__ = ["GitHubIssues", "GitLabIssues", "JiraIssues", "TicketWebhook"]
