"""Filters of the list of letters are saved under a name, for all users."""

import re

import pytest

LETTERS = "/dead-letters/letters"
SAVED = "/dead-letters/saved-filters"


def save(visitor, query, name):
    """Fill the form on the list with these filters, and send it."""
    form = dict(visitor.get(f"{LETTERS}?{query}").form(SAVED))
    return visitor.post(SAVED, {**form, "name": name})


def chips(visitor, query=""):
    """The saved filters on the list, each with its address."""
    body = visitor.get(f"{LETTERS}?{query}").body
    part = body.partition('id="dlq-saved"')[2].partition("</section>")[0]
    return re.findall(r'class="dlq-chip" href="([^"]*)"', part)


@pytest.fixture
def bob(visit, ann):
    visitor = visit(basic_auth=["ann:secret", "bob:secret"])
    visitor.log_in("bob", "secret")
    return visitor


def test_a_saved_filter_is_there_for_all(ann, bob, store):
    saved = save(ann, "task=mail&since=2h&state=dead&state=parked", "overdue mail")
    assert saved.status == 303
    assert saved.headers["Location"] == f"{LETTERS}?task=mail&since=2h&state=dead&state=parked"
    (address,) = chips(bob)
    page = bob.get(address.replace("&amp;", "&"))
    assert [found["value"] for found, _ in page.find("input", name="id")] == ["77e1"]
    assert page.find("a", aria_current="true") == []
    assert 'aria-current="true" title="saved by ann' in page.body
    [act] = store.audit.find(act="save-filter").rows
    assert (act.who, act.detail["saved_as"]) == ("ann (flower)", "overdue mail")


def test_the_list_without_filters_offers_nothing_to_save(ann):
    assert ann.get(LETTERS).find("section", id="dlq-saved") == []


@pytest.mark.parametrize("name", ["a/b ü?", "..", "%2F"])
def test_a_saved_filter_can_be_removed_where_it_is_shown(ann, store, name):
    save(ann, "task=mail", name)
    page = ann.get(f"{LETTERS}?task=mail")
    gone = ann.post(f"{SAVED}/remove", page.form(f"{SAVED}/remove"))
    assert (gone.status, gone.headers["Location"]) == (303, f"{LETTERS}?task=mail")
    assert store.saved_filters.read() == []
    assert chips(ann) == []


def test_removing_it_again_says_that_it_is_gone(ann, store):
    save(ann, "task=mail", "mine")
    page = ann.get(f"{LETTERS}?task=mail")
    store.saved_filters.remove("mine", {"task": ["mail"]}, who="bob")
    store.saved_filters.save("mine", {"task": ["other"]}, who="bob")
    gone = ann.post(f"{SAVED}/remove", page.form(f"{SAVED}/remove"))
    assert gone.status == 404
    assert "This filter is not saved as 'mine' any more" in gone.text
    assert [one.fields for one in store.saved_filters.read()] == [{"task": ["other"]}]


@pytest.mark.parametrize(
    ("query", "name", "said"),
    [
        ("task=mail", "", "has no name"),
        ("task=mail", "n" * 65, "at most 64 characters"),
        ("task=mail", "taken", "Another filter is saved as 'taken'"),
        ("arg=password%3Dhunter2", "mine", "The values of password are redacted"),
    ],
)
def test_a_filter_that_cannot_be_saved_is_refused(ann, app, store, query, name, said):
    app.conf.dlq_search_redacted_key = "k" * 32
    store.saved_filters.save("taken", {"task": ["other"]}, who="bob")
    answer = save(ann, query, name)
    assert answer.status == 400
    assert said in answer.text
    assert [one.name for one in store.saved_filters.read()] == ["taken"]
    assert "hunter2" not in str(store.audit.find(limit=10).rows)


def test_a_form_without_its_mark_saves_nothing(ann, store):
    form = dict(ann.get(f"{LETTERS}?task=mail").form(SAVED))
    assert ann.post(SAVED, {**form, "name": "mine", "mark": ""}).status == 409
    assert store.saved_filters.read() == []


def test_a_flower_that_makes_no_changes_shows_them_only(visit, store):
    store.saved_filters.save("mine", {"task": ["mail"]}, who="bob")
    stranger = visit()
    page = stranger.get(f"{LETTERS}?task=mail")
    assert "mine" in page.text
    assert page.find("form", method="post") == []
    assert stranger.post(SAVED, {"name": "x", "task": "mail"}).status == 403


def test_hostile_names_stay_text(ann, store):
    name = '"><script>alert(1)</script>'
    save(ann, "task=mail", name)
    page = ann.get(f"{LETTERS}?task=mail")
    assert name in page.text
    assert "<script>alert" not in page.body


def test_a_filter_that_a_newer_release_saved_does_not_break_the_list(ann, store):
    store.saved_filters.save("newer", {"colour": ["blue"]}, who="bob")
    assert ann.get(LETTERS).status == 200
