"""Clients of single services: payments, models, messages, code, secrets, markets, maps, SOAP."""

from celery_dlq.classify.builtin.services import (
    anthropic,
    braintree,
    ccxt,
    cohere,
    github,
    gitlab,
    googlemaps,
    huggingface,
    hvac,
    openai,
    slack,
    stripe,
    telegram,
    twilio,
    zeep,
)

ROWS = (
    *anthropic.ROWS,
    *braintree.ROWS,
    *ccxt.ROWS,
    *cohere.ROWS,
    *github.ROWS,
    *gitlab.ROWS,
    *googlemaps.ROWS,
    *huggingface.ROWS,
    *hvac.ROWS,
    *openai.ROWS,
    *slack.ROWS,
    *stripe.ROWS,
    *telegram.ROWS,
    *twilio.ROWS,
    *zeep.ROWS,
)
