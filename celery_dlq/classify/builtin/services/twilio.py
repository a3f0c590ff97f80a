"""Twilio: twilio/base/exceptions.py. ``code`` is Twilio's own number, ``status`` is HTTP's."""

from celery_dlq.classify.builtin.http import http_status
from celery_dlq.classify.table import probed, terminal

ROWS = (
    probed(
        "http.status",
        http_status(("status",), ("status_code",), ("http_status_code",)),
        "status",
        "twilio.base.exceptions.TwilioRestException",
        "twilio.base.exceptions.TwilioServiceException",
    ),
    terminal("twilio.usage", "twilio.base.obsolete.ObsoleteException"),
    terminal("twilio.usage", "twilio.twiml.TwiMLException", "twilio.jwt.JwtDecodeError"),
)
