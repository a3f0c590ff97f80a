"""The workflows and issue forms: what they name exists, and a release is refused unless its parts agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import celery_dlq

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))

workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def load(path: Path) -> Any:
    # YAML takes the key `on` for true.
    found = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in found.items()}


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in load(path)["jobs"].values():
        yield from job.get("steps", [])


def step(path: Path, beginning: str) -> dict[str, Any]:
    [found] = [one for one in steps(path) if one.get("name", "").startswith(beginning)]
    return found


RELEASE = ROOT / ".github/workflows/release.yml"


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", [path for path in FORMS if path.stem != "config"]),
        ("github-issue-config", [path for path in FORMS if path.stem == "config"]),
        ("compose-spec", [ROOT / "docker-compose.yml"]),
    ],
)
def test_the_files_fit_their_schemas(schema: str, files: list[Path]) -> None:
    pytest.importorskip("check_jsonschema")
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    ended = subprocess.run([*command, *files], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@workflow
def test_rights_are_stated_and_versions_of_actions_are_pinned(path: Path) -> None:
    assert load(path)["permissions"] in ({}, {"contents": "read"})
    actions = [one["uses"] for one in steps(path) if "uses" in one]
    assert [name for name in actions if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", name)] == []


@workflow
def test_commands_and_files_of_the_repository_exist(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = "\n".join(one["run"] for one in steps(path) if "run" in one)
    assert set(re.findall(r"^make ([\w-]+)$", commands, re.MULTILINE)) <= targets
    for script in re.findall(r"^(\.\w+/\w+)$", commands, re.MULTILINE):
        assert os.access(ROOT / script, os.X_OK)
    for job in load(path)["jobs"].values():
        assert "uses" not in job or (ROOT / job["uses"]).is_file()


def test_a_release_is_made_from_a_tag_once_and_after_the_gate() -> None:
    release = load(RELEASE)
    jobs = release["jobs"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert "workflow_call" in load(ROOT / ".github/workflows/test.yml")["on"]
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    # Only this job may ask PyPI for a token, and it runs none of our own code.
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert not any("run" in one for one in jobs["publish"]["steps"])
    assert [one for one in steps(RELEASE) if one.get("run", "").startswith("make ")] == [
        step(RELEASE, "Build twice")
    ]


@pytest.mark.parametrize(
    ("changed", "status"),
    [({}, 0), ({"GITHUB_REF_NAME": "v0.0.1"}, 1), ({"GITHUB_REPOSITORY": "someone/else"}, 1)],
)
def test_a_release_is_refused_if_its_parts_do_not_belong_together(
    changed: dict[str, str], status: int
) -> None:
    given = {
        "GITHUB_REF_NAME": f"v{celery_dlq.__version__}", "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "celery-dlq/celery-dlq", **changed,
    }  # fmt: skip
    command = step(RELEASE, "Check that tag")["run"]
    ended = subprocess.run(
        ["bash", "-e", "-c", command], cwd=ROOT, env={**os.environ, **given}, capture_output=True
    )
    assert ended.returncode == status


def test_the_links_beside_the_forms_lead_to_pages() -> None:
    source = re.search(r'^Source = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert source
    links = load(ROOT / ".github/ISSUE_TEMPLATE/config.yml")["contact_links"]
    paths = [link["url"].removeprefix(f"{source[1]}/blob/main/") for link in links]
    assert "SECURITY.md" in paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
