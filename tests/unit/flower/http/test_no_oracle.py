"""No page of the tab, and no call of its REST API, answers differently to the beginning of a secret than to
another text. The addresses come from the table of routes, and the names from what each handler looks up."""

import difflib
import json
import sys
from urllib.parse import quote, urlencode

import pytest
from support.servers.databases import delete_all
from support.stores.oracles import questions, without
from support.stores.planted_secrets import GROUP, OPERATION, TASK_ID, plant

from celery_dlq.flower.http import request
from celery_dlq.flower.routes import API, PAGES

#: Values for the parts of an address.
PARTS = {"{id}": TASK_ID, "{fingerprint}": GROUP, "{name}": "letters.csv", "{act}": "resolve"}

#: Names that are not asked: marks of forms; and changes of messages, which only people may try who may also
#: read the messages in the editor.
NOT_ASKED = {"mark", "_xsrf", "set"}

#: Names whose values may be arguments, or texts that contain some. In other values, the place of an argument
#: is a text like any other.
OF_ARGUMENTS = {"arg", "value", "q", "search", "query"}

ROUTES = [route.path for route in (*PAGES, *API)]


class _Noted(dict):
    """The values of a request; it notes which names are looked up."""

    names: set[str]

    def get(self, name, default=None):
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.names.add(name)
        return super().__contains__(name)


@pytest.fixture
def names(monkeypatch):
    """The names that requests look up."""
    found = set()
    for reader in ("query_values", "form_values", "json_values"):
        original = getattr(request, reader)

        def noted(given, original=original):
            values = _Noted(original(given))
            values.names = found
            return values

        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("celery_dlq.flower") and reader in vars(
                module
            ):
                monkeypatch.setattr(module, reader, noted)
    return found


def filled(path):
    if "operations/" in path:
        path = path.replace("{id}", OPERATION)
    for part, value in PARTS.items():
        path = path.replace(part, value)
    return path


def ask(ann, method, path, given):
    if method == "GET":
        return ann.get(f"{path}?{urlencode(given)}")
    if path.startswith("/api/"):
        body = json.dumps({name: [value] for name, value in given})
        return ann.ask("POST", path, body, {"Content-Type": "application/json"})
    return ann.post(path, given)


@pytest.fixture
def planted(store, ann):
    plant(store)
    return ann


def differing(one, other):
    return [*difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=0)][:12]


def names_of(planted, names, method, path):
    names.clear()
    ask(planted, method, path, [])
    return sorted(names - NOT_ASKED)


def questions_of(name):
    """Pairs of a true and a false text, also after the place of an argument if the name takes that."""
    bare, named, *by_place = questions()
    return [bare, named, *(by_place if name in OF_ARGUMENTS else ())]


def told(answer, asked):
    """The text of an answer, without the question that it repeats."""
    location = answer.headers.get("Location", "")
    return answer.status, without(answer.body, asked), without(location, asked)


def test_no_address_says_more_about_a_secret_than_about_another_text(planted, store, names):
    for path in ROUTES:
        # An act of REST may have changed what the next one finds.
        delete_all(store.database)
        plant(store)
        for method in ("GET", "POST"):
            for name in names_of(planted, names, method, filled(path)):
                for texts in questions_of(name):
                    one, other = (
                        told(ask(planted, method, filled(path), [(name, text)]), text)
                        for text in texts
                    )
                    assert one == other, (method, path, name, texts[0], differing(one[1], other[1]))


def test_no_part_of_an_address_does(planted):
    for path in [path for path in ROUTES if "{" in path]:
        for texts in questions():
            one, other = (
                told(planted.get(path.partition("{")[0] + quote(text, safe="")), text)
                for text in texts
            )
            assert one == other, (path, texts[0])


@pytest.mark.parametrize("path", ["/dead-letters/letters", "/api/dead-letters"])
@pytest.mark.parametrize("text", ["cannot reach", "shop:[redacted]@db"])
def test_what_is_shown_is_found(planted, path, text):
    found, other = (
        planted.get(f"{path}?{urlencode({'search': text})}").body for text in (text, f"{text}#")
    )
    assert TASK_ID in found
    assert TASK_ID not in other


def test_the_names_are_those_that_a_page_reads(planted, names):
    assert "search" in names_of(planted, names, "POST", "/api/dead-letters/redrive")
    found = names_of(planted, names, "GET", "/dead-letters/letters")
    assert {"search", "value", "arg", "q", "after", "worker", "tag"} <= set(found)
    assert "who" in names_of(planted, names, "GET", "/dead-letters/audit")
