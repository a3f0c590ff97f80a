"""A brief describes a group for a ticket or an assistant. The store enters; Markdown or JSON of bounded
length leaves, in which texts from outside are marked and stay in their place."""

from celery_dlq.view.brief.contents import gather as gather
from celery_dlq.view.brief.fitting import TOKEN_LIMIT as TOKEN_LIMIT
from celery_dlq.view.brief.fitting import fitted as fitted
from celery_dlq.view.brief.writing import as_json as as_json
from celery_dlq.view.brief.writing import markdown as markdown
