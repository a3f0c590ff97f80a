"""The manifests of the documentation: what they name is in them, and their commands exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from celery_dlq.cli import dlq

ROOT = Path(__file__).parents[1]
PAGES = ("containers", "deploy")


def blocks(page: str) -> Iterator[Any]:
    """The documents of all YAML blocks of a page."""
    text = (ROOT / f"docs/howto/{page}.md").read_text()
    for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield from yaml.safe_load_all(block)


MANIFESTS = [one for one in blocks("containers") if "kind" in one]
WORKLOADS = [one for one in MANIFESTS if "template" in one.get("spec", {})]
[COMPOSE] = [one for one in blocks("containers") if "services" in one]
SECRETS = {one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "Secret"}

workload = pytest.mark.parametrize("found", WORKLOADS, ids=lambda one: one["metadata"]["name"])


def pod(found: dict[str, Any]) -> dict[str, Any]:
    return found["spec"]["template"]["spec"]


def commands() -> Iterator[list[str]]:
    for found in WORKLOADS:
        yield from (one["command"] for one in pod(found)["containers"])
    for page in PAGES:
        for one in blocks(page):
            for service in one.get("services", {}).values():
                given = service.get("command", [])
                yield shlex.split(given) if isinstance(given, str) else given


@pytest.mark.parametrize("page", PAGES)
def test_every_block_can_be_read(page: str) -> None:
    assert all(isinstance(one, dict) and one for one in blocks(page))


@pytest.mark.parametrize("words", [one for one in commands() if "dlq" in one], ids=" ".join)
def test_the_commands_are_understood(words: list[str]) -> None:
    assert words[:4] == ["celery", "-A", "shop", "dlq"]
    command: click.Command | None = dlq
    rest = words[4:]
    while isinstance(command, click.Group):
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
    assert command is not None
    command.make_context(" ".join(words), list(rest), resilient_parsing=False).close()


@workload
def test_what_a_workload_names_is_there(found: dict[str, Any]) -> None:
    volumes = {one["name"] for one in pod(found).get("volumes", [])}
    for container in (*pod(found)["containers"], *pod(found).get("initContainers", [])):
        assert {one["name"] for one in container.get("volumeMounts", [])} <= volumes
        assert {one["secretRef"]["name"] for one in container.get("envFrom", [])} <= SECRETS
        ports = {one["name"] for one in container.get("ports", [])}
        probes = [
            container[name] for name in ("livenessProbe", "readinessProbe") if name in container
        ]
        assert {probe["httpGet"]["port"] for probe in probes} <= ports


@workload
def test_a_selector_finds_its_pods(found: dict[str, Any]) -> None:
    labels = found["spec"]["template"].get("metadata", {}).get("labels", {})
    assert found["spec"].get("selector", {}).get("matchLabels", {}) == labels


def test_a_service_finds_pods() -> None:
    labels = [one["spec"]["template"].get("metadata", {}).get("labels") for one in WORKLOADS]
    services = [one for one in MANIFESTS if one["kind"] == "Service"]
    assert len(services) == 1
    assert all(one["spec"]["selector"] in labels for one in services)


def test_workers_keep_the_directory_that_the_app_names() -> None:
    text = (ROOT / "docs/howto/containers.md").read_text()
    [directory] = re.findall(r'^app\.conf\.dlq_spool_dir = "(.+)/spool"', text, re.MULTILINE)
    worker = next(one for one in WORKLOADS if one["metadata"]["name"] == "shop-worker")
    assert pod(worker)["containers"][0]["volumeMounts"][0]["mountPath"] == directory
    assert COMPOSE["services"]["worker"]["volumes"] == [f"dlq:{directory}"]


def test_compose_fits_its_schema(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    (tmp_path / "compose.json").write_text(json.dumps(COMPOSE))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ended = subprocess.run([*command, tmp_path / "compose.json"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_compose_names_what_it_has() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        named = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        assert named <= set(COMPOSE["volumes"])
