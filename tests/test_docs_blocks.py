"""Every Python block of the documentation runs alone, as a reader would copy it.

Each runs in a process of its own, in a project that has the modules of ``tests/docs_project`` and nothing
else. A block whose first line is a comment with a file's name is that file of the project, for the other
blocks of its page, too.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNNER = ROOT / "tests" / "docs_project" / "run_blocks.py"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("example_project/*.md")])

#: Modules that the reader's own project has.
OWN = {"shop", "mysite", "celery_dlq"}
#: What a reader of these pages has installed already, since the page is about it.
HAD = {
    "docs/howto/django.md": {"django"},
    "docs/howto/adopt-in-an-existing-project.md": {"celery-singleton", "requests", "tenacity"},
}


@dataclass(frozen=True)
class Block:
    """A Python block, where it stands, and what else its page shows."""

    name: str
    page: str
    text: str
    files: dict[str, str]

    @property
    def module(self) -> str:
        """The dotted name of its file; else one that is the block's own."""
        return dotted(file_of(self.text)) or "block"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, with the lines that they begin on."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: match.start()].count("\n") + 2, match[1]) for match in found]


def file_of(text: str) -> str:
    """The file that a block says it is: a path in a comment on its first line."""
    said = re.match(r"# ([\w/]+\.py)\n", text)
    return said[1] if said else ""


def dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def all_blocks() -> list[Block]:
    found = []
    for path in PAGES:
        text, page = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        here = python_blocks(text)
        files = {file_of(block): block for _, block in here if file_of(block)}
        found += [Block(f"{page}:{line}", page, block, files) for line, block in here]
    return found


BLOCKS = all_blocks()

each_block = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    """What is wrong with which block."""
    given = [{**asdict(block), "module": block.module} for block in BLOCKS]
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER)],
        input=json.dumps(given), capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@each_block
def test_it_runs_alone(block: Block, problems: dict[str, str]) -> None:
    assert block.name not in problems, problems[block.name]


def imported(text: str) -> set[str]:
    """The packages that a block imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def extras() -> dict[str, set[str]]:
    """The distributions that come with the package, under "", and with each of its extras."""
    found: dict[str, set[str]] = {"": {"celery-dlq"}}
    for line in importlib.metadata.requires("celery-dlq") or ():
        name = normal(re.split(r"[^\w.-]", line, maxsplit=1)[0])
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        found.setdefault(extra[1] if extra else "", set()).add(name)
    return found


def installed_by(page: str) -> set[str]:
    """The distributions that a reader has who did what the page says."""
    text, given = (ROOT / page).read_text(encoding="utf-8"), extras()
    named = HAD.get(page, set()) | given[""]
    for words in re.findall(r"pip install ([^\n`]+)", text):
        for word in re.sub("[\"']", "", words).split():
            named.add(normal(word))
            for extra in asked_extras(word):
                named |= given[extra]
    return named


def asked_extras(text: str) -> list[str]:
    """The extras of ours that ``text`` asks pip for."""
    return [
        extra for asked in re.findall(r"celery-dlq\[([\w,]+)\]", text) for extra in asked.split(",")
    ]


def normal(distribution: str) -> str:
    """The one spelling of a distribution's name: PEP 503."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


@pytest.fixture(scope="module")
def of_module() -> Mapping[str, list[str]]:
    """The distributions by the packages that are in them."""
    return importlib.metadata.packages_distributions()


@each_block
def test_its_page_says_how_to_install_its_imports(
    block: Block, of_module: Mapping[str, list[str]]
) -> None:
    foreign = imported(block.text) - OWN - set(sys.stdlib_module_names)
    foreign -= {name.partition("/")[0].removesuffix(".py") for name in block.files}
    missing = {
        name
        for name in foreign
        if not {*map(normal, of_module.get(name, [name]))} & installed_by(block.page)
    }
    assert missing == set(), f"{block.page} does not say how to install them"


def test_every_extra_that_a_page_names_exists() -> None:
    named = {extra for path in PAGES for extra in asked_extras(path.read_text(encoding="utf-8"))}
    assert {"postgres", "redis"} <= named <= set(extras())


def test_the_page_about_tests_passes_as_it_is_written(tmp_path: Path, redis_url: str) -> None:
    [files] = {
        json.dumps(block.files) for block in BLOCKS if block.page == "docs/howto/test-your-tasks.md"
    }
    for name, text in json.loads(files).items():
        (tmp_path / name).write_text(text)
    plugins = ["-p", "pytest_celery_dlq", "-p", "no:randomly", "-p", "no:xdist"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TEST_BROKER": f"{redis_url}/13"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "7 passed" in ran.stdout
