"""Letters as a claim gives them: with the headers and properties of their messages as the store gives them
back."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from support.factories import T0, envelope, letter

from celery_dlq.base.codec import decode_table, encode_table
from celery_dlq.model import headers as known
from celery_dlq.model.letter import DeadLetter
from celery_dlq.model.states import State

HEADERS = {
    "lang": "py", "task": "shop.charge", "id": "0d3f", "shadow": None, "eta": None, "expires": None,
    "group": None, "group_index": None, "retries": 3, "timelimit": [None, None], "root_id": "0d3f",
    "argsrepr": "[{'id': \"17\"}]", "kwargsrepr": "{}", "origin": "gen1@box", "stamps": {"a": 1},
}  # fmt: skip
PROPERTIES = {"correlation_id": "0d3f", "reply_to": "r", "priority": 6, "delivery_mode": 1}
#: Properties such as Celery writes.
OF_CELERY = [
    PROPERTIES,
    {"correlation_id": "c"},
    {"correlation_id": "c", "priority": 0},
    {"correlation_id": "c", "reply_to": "r", "delivery_mode": 2},
]

OURS = sorted(
    value for name, value in vars(known).items()
    if name.endswith("_HEADER") and isinstance(value, str)
)  # fmt: skip

names = st.sampled_from(
    [
        *(
            "task",
            "id",
            "retries",
            "eta",
            "expires",
            "lang",
            "compression",
            "argsrepr",
            "ü",
            "",
            'a"b',
        ),
        *(*OURS, *known.DELIVERY_HEADERS),
    ]
)
texts = st.sampled_from(
    ["0d3f", '"retries":1', "\\", "", "é\ud800", '"x-dlq-redrive"', "{}", "a,", ',"', "x" * 99]
)
numbers = st.booleans() | st.integers(-(2**31) - 1, 2**63 - 1) | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | numbers | texts | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
extra = st.dictionaries(names, values, max_size=3)
properties = st.fixed_dictionaries(
    {},
    optional={
        "correlation_id": texts, "reply_to": texts, "priority": st.integers(0, 12),
        "delivery_mode": st.sampled_from([1, 2]), "expiration": texts, "type": texts,
    },
)  # fmt: skip


def claimed(
    headers: dict[str, Any] = HEADERS, properties: dict[str, Any] = PROPERTIES, **changes: Any
) -> DeadLetter:
    """A letter whose message has these headers and properties.

    :param changes: of its envelope.
    """
    message = envelope(
        headers=decode_table(encode_table(headers)),
        properties=decode_table(encode_table(properties)),
        **changes,
    )
    return letter("0d3f", envelope=message, claim_token="t0k", state=State.CLAIMED)


#: Letters whose messages, or places to send them to, are unlike most.
OTHERS = {
    "bytes": claimed({**HEADERS, "x": b"bytes"}),
    "id": claimed({**HEADERS, "id": "another"}),
    "no task": claimed({**HEADERS, "task": None}),
    "expiration": claimed(properties={**PROPERTIES, "expiration": "5000"}),
    "no properties": claimed(properties={}),
    "no type": claimed(content_type=""),
    "no encoding": claimed(content_encoding=""),
    "exchange": claimed(queue="", exchange="shop"),
    "parked": claimed().with_(state=State.PARKED),
    "later": claimed().with_(due_at=T0),
    "unclaimed": claimed().with_(claim_token=None),
    "repaired": claimed().with_(envelope=envelope(headers=HEADERS)),
}
