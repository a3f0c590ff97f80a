"""Adding the tab to Flower; an error never stops Flower."""

import importlib.metadata
import json
import re
from pathlib import Path

import pytest
from celery import Celery
from flower import app as flower_module
from flower import urls
from tornado.template import Template

from celery_dlq.flower import SITE, install, routes
from celery_dlq.flower import attach as public_attach
from celery_dlq.flower.routes import API, PAGES
from celery_dlq.settings import Settings
from celery_dlq.store.sql import SQLStore
from celery_dlq.worker.task import DLQTask

NAVBAR = Path(urls.settings["template_path"]) / "navbar.html"


def test_importing_the_commands_installs_it(visit, three):
    import celery_dlq.cli  # noqa: F401

    assert getattr(flower_module.Flower, "_celery_dlq_installed", False)
    before = flower_module.Flower.__init__
    install()
    assert flower_module.Flower.__init__ is before


def test_another_module_named_flower_is_left_alone(monkeypatch):
    class Flower:
        def __init__(self, colour):
            self.colour = colour

    def version(_name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(flower_module, "Flower", Flower)
    monkeypatch.setattr(importlib.metadata, "version", version)
    install()
    assert Flower("red").colour == "red"
    assert not hasattr(Flower, "_celery_dlq_installed")


def test_an_app_without_a_dead_letter_queue_has_no_tab(visit):
    plain = Celery("plain", broker="memory://", set_as_current=False)
    visitor = visit(plain)
    assert SITE not in visitor.flower.settings
    assert visitor.get("/tasks").find("a", href="/dead-letters") == []
    assert visitor.get("/dead-letters").status == 404
    assert visitor.get("/api/dead-letters").status == 404
    plain.close()


def nothing():
    """A task's body."""


@pytest.mark.parametrize("how", ["task", "setting", "environment", "namespace"])
def test_an_app_with_a_dead_letter_queue_has_the_tab(visit, monkeypatch, tmp_path, how):
    app = Celery("some", broker="memory://", set_as_current=False)
    url = f"sqlite:///{tmp_path}/letters.sqlite3"
    if how == "environment":
        monkeypatch.setenv("CELERY_DLQ_STORE_URL", url)
    elif how == "namespace":
        settings = type("Settings", (), {"CELERY_DLQ_STORE_URL": url})
        app.config_from_object(settings, namespace="CELERY")
    elif how == "setting":
        app.conf.dlq_store_url = url
    else:
        monkeypatch.chdir(tmp_path)
        app.task(name="some.task", base=DLQTask, shared=False)(nothing)
        made = SQLStore(Settings().store_url)
        made.check_schema()
        made.close()
    visitor = visit(app)
    assert visitor.get("/dead-letters/letters").status == 200
    vars(app)["dead_letter_queue"].store.close()
    app.close()


def test_attaching_twice_is_attaching_once(visit, three):
    visitor = visit()
    site = visitor.flower.settings[SITE]
    assert public_attach(visitor.flower) is True
    assert visitor.flower.settings[SITE] is site


def test_flower_runs_even_if_the_tab_fails(visit, three, monkeypatch, caplog):
    def use_templates(_app):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(routes, "use_templates", use_templates)
    visitor = visit()
    assert "Flower runs without the tab" in caplog.text
    assert visitor.get("/tasks").status == 200
    assert visitor.get("/dead-letters").status == 404


def test_another_flower_in_the_process_has_no_tab(visit, three):
    plain = Celery("plain", broker="memory://", set_as_current=False)
    ours, other = visit(), visit(plain)
    assert ours.get("/tasks").find("a", href="/dead-letters")
    assert other.get("/tasks").find("a", href="/dead-letters") == []
    plain.close()


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({}, "DEAD-LETTERED"),
        ({"dlq_events": False}, ""),
    ],
    ids=str,
)
def test_flowers_pages_get_the_state_of_dead_letters(visit, app, three, settings, state):
    app.conf.update(settings)
    scripts = visit().get("/tasks").find("script")
    [found] = [one for one, _ in scripts if "flower_pages.js" in one.get("src", "")]
    assert found["data-dead-state"] == state


class TestNavigation:
    def test_the_entry_is_like_flowers_own(self):
        patched = routes.with_tab(NAVBAR.read_text())
        entries = re.findall(r"reverse_url\('(\w+)'\)", patched)
        assert entries.index("dlq") == entries.index("broker") + 1
        assert patched.count("Dead letters") == 1
        Template(patched)

    def test_an_unknown_navigation_is_left_unchanged(self, caplog):
        assert routes.with_tab("<nav>something else</nav>") == "<nav>something else</nav>"
        assert "/dead-letters" in caplog.text


@pytest.mark.parametrize("path", ["/dead-letters/nowhere", "/dead-letters/letters/a/b/c/d"])
def test_an_address_without_a_page_says_so_on_a_page_of_ours(visit, path):
    page = visit().get(path)
    assert page.status == 404
    assert "This page does not exist. Go back to the overview." in page.text
    assert page.find("a", href="/dead-letters")
    assert [text for _, text in page.find("h1")] == ["Not found"]


def test_an_address_without_a_resource_says_so_as_json(visit, monkeypatch):
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    answer = visit().get("/api/dead-letters/letters/a/b/c")
    assert answer.status == 404
    assert json.loads(answer.body)["error"]["title"] == "Not found"


@pytest.mark.parametrize("name", ["", "groups", "letters", "operations", "automations", "audit"])
def test_every_page_of_the_tab_has_one_heading(visit, name):
    assert len(visit().get(f"/dead-letters/{name}".rstrip("/")).find("h1")) == 1


def test_every_address_is_matched_by_one_route_only():
    filled = [re.sub(r"\{\w+\}", "x", route.path) for route in (*PAGES, *API)]
    for path in filled:
        matching = [r.path for r in (*PAGES, *API) if re.fullmatch(r.pattern, path)]
        assert len(matching) == 1, matching


def test_no_address_collides_with_flowers():
    # flower.js starts its own tables where an address begins so.
    assert [r.path for r in (*PAGES, *API) if r.path.startswith(("/tasks", "/workers"))] == []
