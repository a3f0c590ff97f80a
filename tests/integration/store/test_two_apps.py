"""Two apps with workers of their own in one store. One of them attacks the letters of the other one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from project import Project, wait_for

from celery_dlq.model.states import State
from celery_dlq.store.base import Filter

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(scope="module")
def apps(tmp_path_factory, redis_url) -> Iterator[tuple[Project, Project]]:
    """Two projects that share a store, each with a worker."""
    place = tmp_path_factory.mktemp("apps")
    store, made = f"sqlite:///{place}/store.sqlite3", []
    for name in ("shop", "mail"):
        (place / name).mkdir()
        settings = {"dlq_namespace": name}
        project = Project(place / name, f"{redis_url}/9", store, settings=settings)
        project.app.conf.update(settings)
        made.append(project)
    shop, mail = made
    try:
        with shop.worker("-c", "1"), mail.worker("-c", "1"):
            yield shop, mail
    finally:
        for project in made:
            project.close()


@pytest.fixture
def dead(apps) -> Iterator[tuple[str, ...]]:
    """A letter of each app, after the same failure of a task with the same name."""
    found = []
    for project in apps:
        found.append(project.send("terminal", 1))
        project.wait_for_letter(found[-1])
    yield tuple(found)
    for project in apps:
        project.begin_again()


def state_of(project: Project) -> object:
    """Everything that the app itself sees."""
    every = Filter(states=frozenset(State))
    store = project.dlq.store
    letters = [store.letters.get(one.task_id) for one in store.letters.find(every).letters]
    return letters, store.audit.find().rows, store.operations.find(), store.counts.letters(every)


def test_each_app_sees_its_own_letter_and_group(apps, dead):
    groups = set()
    for project, task_id in zip(apps, dead, strict=True):
        listed = json.loads(project.invoke("list", "--format", "json").stdout)
        assert [one["task_id"] for one in listed] == [task_id]
        assert listed[0]["namespace"] == project.settings["dlq_namespace"]
        groups.add(listed[0]["fingerprint"])
        stats = json.loads(project.invoke("stats", "--format", "json").stdout)
        assert stats["depth"] == 1
    assert len(groups) == 2


ATTACKS = {
    "show": ("show", "{id}"),
    "redrive": ("redrive", "{id}", "--yes"),
    "redrive of a group": ("redrive", "--group", "{group}", "--yes"),
    "discard": ("discard", "{id}", "--yes", "--why", "x"),
    "edit": ("redrive", "{id}", "--yes", "--set", "args.0=2"),
    "forget": ("forget", "--task-id", "{id}", "--yes", "--why", "x"),
}


@pytest.mark.parametrize("words", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_attack_on_a_letter_of_the_other_app_is_refused(apps, dead, words):
    (shop, mail), (of_shop, _) = apps, dead
    before = state_of(shop)
    group = shop.letter(of_shop).fingerprint
    done = mail.invoke(*(word.format(id=of_shop, group=group) for word in words))
    assert done.exit_code == 1, done.stdout + done.stderr
    said = "No group" if "--group" in words else "No dead letter"
    assert said in done.stdout + done.stderr
    assert state_of(shop) == before


def test_a_redrive_of_all_takes_its_own_letters_only(apps, dead):
    (shop, mail), (of_shop, of_mail) = apps, dead
    before = state_of(shop)
    mail.fixed.touch()
    done = mail.invoke("redrive", "--all", "--yes", "--detach")
    assert done.exit_code == 0, done.stderr
    mail.wait_for_letter(of_mail, State.RESOLVED)
    wait_for("the end", lambda: mail.dlq.store.operations.find()[0].ended_at)
    assert state_of(shop) == before
    assert shop.letter(of_mail) is None
    assert shop.letter(of_shop).state is State.DEAD


def test_a_worker_with_several_namespaces_does_not_start(apps):
    shop, _ = apps
    environ = {**shop.environ, "PROJ_SETTINGS": json.dumps({"dlq_namespace": ["shop", "mail"]})}
    other = Project(shop.directory, shop.broker, shop.store_url, environ=environ)
    try:
        done = other.run("worker", "-c", "1", "-P", "solo")
        assert done.returncode != 0
        (said,) = (line for line in done.stderr.splitlines() if "namespace" in line)
        assert "or in dlq_namespace" in said
    finally:
        other.close()
