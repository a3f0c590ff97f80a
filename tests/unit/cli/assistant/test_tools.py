import re

import click
import pytest

from celery_dlq.cli.assistant.tools import TOOLS, call
from celery_dlq.cli.letters.inspect import list_letters

#: Options of commands that act, name a place, or run the user's code.
NEVER = {
    "yes",
    "detach",
    "wait",
    "transform",
    "set",
    "to_task",
    "why",
    "format",
    "file",
    "url",
}


def test_letters_takes_every_filter_of_the_list():
    names = {max(one.opts, key=len).lstrip("-") for one in list_letters.params}
    assert set(TOOLS["letters"].params) == names - {"format"}


@pytest.mark.parametrize("name", TOOLS)
def test_a_schema_says_what_is_allowed_and_how_much(name):
    schema = TOOLS[name].schema
    assert schema["additionalProperties"] is False
    assert not NEVER & set(schema["properties"])
    for about in schema["properties"].values():
        item = about.get("items", about)
        assert item["type"] in {"string", "integer", "boolean"}
        assert item["type"] != "string" or item["maxLength"] == 500
        assert item["type"] != "integer" or item["maximum"]
        assert about["type"] != "array" or about["maxItems"] == 20
    assert not re.search(r"\b(path|address|url)\b", TOOLS[name].about, re.IGNORECASE)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("lettres", {}, "'lettres' is not a tool; did you mean 'letters' or 'letter'?"),
        ("x\x1b" * 500, {}, "is not a tool"),
        ("letters", {"stat": "dead"}, "'stat' is not an argument of letters; did you mean 'state'?"),
        ("letters", {"--yes": True}, "'--yes' is not an argument of letters"),
        ("letters", {"state": "dead"}, "state is not of the type array"),
        ("letters", {"state": [["dead"]]}, "state has an item that is not a text"),
        ("letters", {"state": [None]}, "state has an item that is not a text"),
        ("letters", {"state": ["lost"]}, "'lost' is not a state that this command takes"),
        ("letters", {"arg": ["a=1"] * 21}, "arg has 21 items; give at most 20"),
        ("letters", {"arg": ["a"]}, "'a' is not an argument; write its name, =, and its value"),
        ("letters", {"limit": 51}, "limit is not from 1 to 50"),
        ("letters", {"limit": True}, "limit is not of the type integer"),
        ("letters", {"limit": "5"}, "limit is not of the type integer"),
        ("letters", {"search": "x" * 501}, "search has 501 characters; give at most 500"),
        ("letters", {"search": "a\nb"}, "search has characters that cannot be seen"),
        ("letters", {"search": "a\ud800"}, "search has characters that cannot be seen"),
        ("letters", {"search": " "}, "it is empty"),
        ("letters", {"since": "soon"}, "soon"),
        ("letter", {}, "Missing argument"),
        ("propose_redrive", {}, "Give ids or filters"),
        ("propose_redrive", {"all": True, "task": "x"}, "--all contradicts ids and filters"),
        ("propose_redrive", {"rate": "fast", "all": True}, "fast"),
        ("docs", {"topic": "../../etc/passwd"}, "is not a topic of the documentation"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_an_error_that_says_why(shop_app, tool, arguments, said):
    with click.Context(click.Command("dlq")):
        text, failed = call(shop_app, tool, arguments)
    assert failed
    assert said in text.replace('\\"', '"')
    assert len(text) < 2_000


def test_an_argument_never_becomes_an_option(shop_app):
    with click.Context(click.Command("dlq")):
        for value in ("--help", "--format=csv", "-h", "--"):
            text, failed = call(shop_app, "letter", {"task_id": value})
            assert failed
            assert "No dead letter has an id that begins with" in text


def test_an_unexpected_error_is_logged_and_not_shown(shop_app, monkeypatch, caplog):
    monkeypatch.setattr(TOOLS["letters"].command, "callback", lambda **_: {}["obey"])
    with click.Context(click.Command("dlq")):
        text, failed = call(shop_app, "letters", {})
    assert failed
    assert "obey" not in text
    assert "KeyError" in caplog.text
