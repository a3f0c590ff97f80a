"""Letters whose messages can be put together from the texts that the store has of them: nearly all go back
with their headers as they are, under another beginning. To read and write those took half of a redrive's
time."""

from __future__ import annotations

import re
from typing import TypeAlias

from celery_dlq.letter import DeadLetter
from celery_dlq.states import State
from celery_dlq.written_table import WrittenHeaders, WrittenTable

#: The properties that nearly all messages have, in the order in which they are captured; of a text without a
#: backslash, which takes longer to find in here.
_PROPERTIES = re.compile(
    r'\{"correlation_id":"(?P<correlation_id>[^"]*)"(?:,"reply_to":"(?P<reply_to>[^"]*)")?'
    r'(?:,"priority":(?P<priority>\d))?(?:,"delivery_mode":(?P<delivery_mode>[12]))?\}'
)


# Each time that it is asked for, a member of an enumeration is looked up.
_PARKED = State.PARKED

#: Such a message: the task, the id, the token of the claim that sends it, the text of the headers after their
#: opening, and the text of the properties, in groups. Only in that of the headers something may be escaped,
#: as JSON. A plain tuple, because to make one of another class takes as long as to read the properties.
AsWritten: TypeAlias = tuple[str, str, str, str, re.Match[str]]


def as_written(letter: DeadLetter) -> AsWritten | None:
    """What is written of the message that is to be sent for ``letter``; None where its headers have to be
    read, or kombu has to make up for something."""
    envelope, token = letter.envelope, letter.claim_token
    headers, properties = envelope.headers, _properties(envelope.properties)
    if not isinstance(headers, WrittenHeaders) or headers.opening is None or token is None:
        return None
    task, task_id = headers.opening.groups()
    is_first = task_id == letter.task_id and letter.due_at is None
    is_whole = envelope.queue and envelope.content_type and envelope.content_encoding
    if properties is None or not is_first or not is_whole or letter.state is _PARKED:
        return None
    return task, task_id, token, headers.text[headers.opening.end() :], properties


def _properties(properties: object) -> re.Match[str] | None:
    if not isinstance(properties, WrittenTable) or "\\" in properties.text:
        return None
    return _PROPERTIES.fullmatch(properties.text)
