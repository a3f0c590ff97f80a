"""The documentation says what the code does: every name is there, every link leads somewhere."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from celery import Celery
from celery.bin.base import CLIContext
from matrix.mode import Place
from matrix.page import INTRODUCTION, SYMBOLS
from matrix.table import MODES
from support import factories
from support.briefs import brief_of

import celery_dlq
import pytest_celery_dlq
from celery_dlq import hooks, testing, tickets
from celery_dlq.base.sensitive import SENSITIVE
from celery_dlq.classify.builtin.known import TABLE
from celery_dlq.classify.rules import DEFAULT_RULE
from celery_dlq.cli import dlq, exits
from celery_dlq.cli.admin.help import find_pages
from celery_dlq.cli.doctor.command import CHECKS
from celery_dlq.model.group import Group
from celery_dlq.model.operation import Counts, OperationState, Orders, Sending, SendingState
from celery_dlq.model.states import OPEN_STATES, TRANSITIONS, Reason, State, Verdict
from celery_dlq.model.worker import Lost, RecorderReport, ReportKind
from celery_dlq.recorder.files import Standing
from celery_dlq.settings import STORE_URL_VARIABLE, Settings
from celery_dlq.spool.look import FileState, SpoolFile
from celery_dlq.store.base import AuditRow, Change, Filter, Operation, Stats
from celery_dlq.store.database import schema, tables
from celery_dlq.store.keeping import ArchiveTotals, Holding, Keeping, Kept, RoundReport
from celery_dlq.view import records
from celery_dlq.view.letters import WholeLetter
from celery_dlq.view.stats import Losses, keeping_record, lost_record
from celery_dlq.worker.options import TaskOptions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"

#: Every page that is ours.
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "example_project").glob("*.md")],
)

#: Options of a task that look like settings.
TASK_OPTIONS = {name for name in vars(TaskOptions) if name.startswith("dlq_")}
#: Fixtures of the pytest plugin.
FIXTURES = {name for name in vars(pytest_celery_dlq) if name.startswith("dlq_")}

page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = load(REFERENCE / "generate.py")


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, without the marks of code."""
    for line in text.splitlines():
        if line.startswith("|") and not set(line) <= set("|- "):
            cells = re.split(r"(?<!\\)\|", line.strip("|"))
            yield [cell.strip().replace("\\|", "|") for cell in cells]


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of ``language``, a pattern."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


class TestGeneratedParts:
    @pytest.mark.parametrize("name", GENERATE.parts())
    def test_they_are_as_the_code_is(self, name: str) -> None:
        text = read(REFERENCE / name)
        assert text == GENERATE.generated(text, GENERATE.parts()[name]), (
            "run: python docs/reference/generate.py"
        )

    def test_a_part_without_a_place_is_noticed(self) -> None:
        with pytest.raises(ValueError, match="no place"):
            GENERATE.generated("# Page\n", {"commands": "text"})


class TestNames:
    @pytest.mark.parametrize(
        ("names", "about"),
        [
            (hooks.__all__, "hooks"),
            (tickets.__all__, "repair-and-escalate"),
            (testing.__all__, "test-your-tasks"),
        ],
    )
    def test_every_ready_hook_and_handler_is_described(self, names: list[str], about: str) -> None:
        text = read(DOCS / "howto" / f"{about}.md")
        assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []

    def test_the_table_of_the_api_names_tests_that_exist(self) -> None:
        listed = rows(
            read(REFERENCE / "python.md").partition("## What is API")[2].partition("\n### ")[0]
        )
        tests = [re.findall(r"`(tests/\S+\.py)`", row[2]) for row in listed if "tests/" in row[2]]
        assert len(tests) > 8
        assert all((ROOT / path).is_file() for paths in tests for path in paths)


class TestSettings:
    def test_every_setting_has_its_row_with_its_default(self) -> None:
        documented = {row[0]: row[1:] for row in rows(read(REFERENCE / "settings.md"))}
        for item in fields(Settings):
            default, allowed, meaning = documented[f"`dlq_{item.name}`"]
            assert ast.literal_eval(default.strip("`")) == item.default
            assert allowed == item.metadata["allowed"].words
            assert meaning == item.metadata["text"]

    def test_the_variable_is_recommended_where_urls_are_given(self) -> None:
        for path in ("README.md", "docs/reference/settings.md", "docs/howto/keep-secrets-out.md"):
            assert STORE_URL_VARIABLE in read(path)

    @page
    def test_every_setting_that_a_page_names_exists(self, path: Path) -> None:
        known = {f"dlq_{item.name}" for item in fields(Settings)} | TASK_OPTIONS | FIXTURES
        if path.name == "CHANGELOG.md":
            known |= {"dlq_redis_atomic_take", "dlq_on_stall", "dlq_on_"}  # which are gone
        # One is misspelt on purpose, to show the error.
        named = set(re.findall(r"(?<![\w.])dlq_[a-z_]+", read(path)))
        assert named - known - {"dlq_max_atempts"} == set()

    def test_every_task_option_is_documented(self) -> None:
        text = read(REFERENCE / "task_options.md")
        own = {
            name
            for name in TaskOptions.__annotations__
            if re.match("dlq_|retry_|auto|dont|max_", name)
        }
        assert {name for name in own if f"`{name}`" not in text} == set()

    def test_every_built_in_key_part_is_listed(self) -> None:
        text = read("docs/howto/keep-secrets-out.md")
        assert [part for part in SENSITIVE if f"`{part}`" not in text] == []


def commands(group: click.Group = dlq, path: str = "dlq") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{path} {name}", command


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every command line of ours in a code block, as page and words."""
    for path in PAGES:
        for block in blocks(read(path), "[a-z]*"):
            for line in re.findall(r"celery -A \S+ (dlq [^|#)\n]*)", block):
                yield str(path.relative_to(ROOT)), shlex.split(line.rstrip())


def named_commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of ours that a sentence names, as page and words."""
    for path in PAGES:
        for span in re.findall(r"`([^`]+)`", without_code(read(path))):
            named = re.match(r"(?:celery (?:-A \S+ )?)?(dlq [a-z].*)", " ".join(span.split()))
            if named:
                yield str(path.relative_to(ROOT)), named[1].split()


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that ``words`` begin with, and the words after its name."""
    command: click.Command | None = dlq
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
    if isinstance(command, exits.NamingGroup) and command.alone and rest:
        command = command.get_command(click.Context(command), command.alone)
    assert command is not None, f"there is no command {words}"
    return command, rest


def sections(text: str) -> dict[str, str]:
    """The parts of the reference by command."""
    found = re.split(r"^### `(dlq [a-z ]*[a-z]).*`$", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


class TestCommandLine:
    @pytest.mark.parametrize(("name", "command"), list(commands()))
    def test_every_command_and_option_is_in_the_reference(
        self, name: str, command: click.Command
    ) -> None:
        section = sections(read(REFERENCE / "cli.md"))[name]
        for option in command.params:
            if isinstance(option, click.Option):
                assert f"- `{option.opts[0]}" in section
                assert str(option.help) in section

    @pytest.mark.parametrize(("source", "words"), list(command_lines()))
    def test_every_command_line_of_the_pages_is_understood(
        self, source: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command, rest = found(words)
        monkeypatch.chdir(tmp_path)
        for name in rest:
            if name.endswith((".log", ".jsonl")):
                Path(name).touch()
        # Raises a usage error for an option that the command does not have, and for a value that the
        # option does not take.
        shop = Celery("shop", set_as_current=False)
        shop.conf.dlq_store_url = f"sqlite:///{tmp_path}/store.sqlite3"
        named = CLIContext(shop, no_color=True, workdir=None)
        with command.make_context(" ".join(words), list(rest), obj=named) as context:
            assert context.params.keys() >= {option.name for option in command.params}

    @pytest.mark.parametrize(("source", "words"), list(named_commands()))
    def test_every_command_that_a_sentence_names_is_there(
        self, source: str, words: list[str]
    ) -> None:
        command, rest = found(words)
        known = {name for option in command.params for name in option.opts}
        assert {word for word in rest if word.startswith("--")} - known == set()

    def test_exit_statuses(self) -> None:
        values = {value for name, value in vars(exits).items() if name.isupper()}
        listed = {int(row[0]) for row in rows(read(REFERENCE / "cli.md")) if row[0].isdigit()}
        assert listed == values

    def test_every_json_field_is_named(self) -> None:
        whole = WholeLetter(letter=factories.letter(), redrives=[_SENDING], changes=[_CHANGE])
        letter = whole.record()
        given = [
            *(letter, letter["explanation"], *letter["attempt_history"]),
            *(*letter["redrives"], *letter["changes"]),
            records.whole_operation_record(_OPERATION, [_SENDING]),
            records.as_record(_ACT),
            *(_BRIEF, _BRIEF["attempts"], _BRIEF["redrives"], *_BRIEF["operations"]),
            *(_BRIEF["from_outside"], *_BRIEF["from_outside"]["arguments"]),
            *_BRIEF["from_outside"]["shared"],
            records.group_record(_GROUP, (), factories.T0, route_owner=""),
            records.stats_record(Stats(**_EMPTY_STATS)),
            *(
                _KEEPING,
                _KEEPING["retention"],
                _KEEPING["archive"],
                _KEEPING["retention"]["entries"][0],
            ),
            records.file_record(_SPOOL_FILE),
            *(_LOST, _LOST["here"], *_LOST["reports"]),
            {"up_to_s": None, "count": 0},
        ]
        text = read(REFERENCE / "cli.md").partition("## JSON fields")[2]
        assert {name for record in given for name in record if f"`{name}`" not in text} == set()

    def test_fields_that_only_show_prints_are_marked_so(self) -> None:
        letter = factories.letter()
        listed = set(records.letter_record(letter, owner=""))
        only_shown = set(WholeLetter(letter=letter).record()) - listed
        where = {
            name: row[1]
            for row in rows(read(REFERENCE / "cli.md"))
            if len(row) == 3
            for name in re.findall(r"`(\w+)`", row[0])
        }
        assert {name for name in listed if where.get(name) != "list, show"} == set()
        assert {name for name in only_shown if where.get(name) != "show"} == set()

    def test_the_checks_of_the_doctor_are_listed(self) -> None:
        listed = [row[0] for row in rows(read("docs/operations.md"))]
        assert [name for name, *_ in CHECKS if name not in listed] == []


_SPOOL_FILE = SpoolFile(
    name="", state=FileState.WAITING, records=0, size=0, written_at=factories.T0
)

_SENDING = Sending(operation="", task_id="", task="", redrive=1, state=SendingState.SENT)

_CHANGE = Change(task_id="", at=factories.T0, who="", how="", diff="", before=factories.envelope())

_OPERATION = Operation(
    id="",
    wanted=Filter(),
    orders=Orders(),
    counts=Counts(),
    who="",
    host="",
    created_at=factories.T0,
)

_BRIEF = brief_of("")

_ACT = AuditRow(id=1, at=factories.T0, who="", host="", act="", count=0, why="", detail={})

#: Enough of a Stats to see the names of its fields.
_GROUP = Group(
    fingerprint="9c1e", task="charge", exception_type="ValueError", message="", open_count=1,
    total_count=1, first_seen_at=factories.T0, last_seen_at=factories.T0,
)  # fmt: skip
_KEEPING = keeping_record(
    Keeping(
        round=RoundReport(
            ended_at=factories.T0,
            removed=0,
            holdings=(Holding(where=None, age=None, kept=Kept.none()),),
        ),
        archive=ArchiveTotals(segments=0, letters=0, size=0, last_at=None),
        check=None,
    ),
    factories.T0,
)
_REPORT = RecorderReport(
    kind=ReportKind.STUCK, about="", worker="", host="", messages=1, since=factories.T0, why=""
)
_LOST = lost_record(
    Losses(
        lost=Lost(open=0, arrived=0, reports=(_REPORT,)),
        here=Standing(running=0, unrecovered=0, forgotten=0, oldest_at=None),
    )
)
_EMPTY_STATS: dict[str, Any] = {
    **{item.name: {} for item in fields(Stats)},
    "oldest_open_at": None,
}


class TestStates:
    text = read("docs/state_machine.md")
    moves = {(source, target) for source, into in TRANSITIONS.items() for target in into}

    def test_the_picture_is_the_table_of_the_code(self) -> None:
        drawn = re.findall(r"^    (\w+) --> (\w+):", self.text, re.MULTILINE)
        assert {(State(source), State(target)) for source, target in drawn} == self.moves
        assert "[*] --> dead:" in self.text

    def test_so_is_the_table_of_the_page(self) -> None:
        states = {state.value for state in State}
        listed = [row[:2] for row in rows(self.text) if {*row[:2]} <= states]
        assert {(State(source), State(target)) for source, target in listed} == self.moves
        assert len(listed) == len(self.moves), "each move once"

    @pytest.mark.parametrize("word", [*State, *Reason, *Verdict])
    def test_every_word_is_explained(self, word: State | Reason | Verdict) -> None:
        assert word.value in [row[0] for row in rows(self.text)]
        assert re.search(rf"^\*\*{word.value}\*\*|`{word.value}`", read("docs/glossary.md"), re.M)

    @pytest.mark.parametrize("word", [*OperationState, *SendingState])
    def test_every_word_of_an_operation_is_explained(
        self, word: OperationState | SendingState
    ) -> None:
        assert word.value in [row[0] for row in rows(self.text)]

    def test_the_open_states_are_named(self) -> None:
        (sentence,) = re.findall(r"\*\*Open\*\* are (.*?);", self.text)
        assert {State(name) for name in re.findall(r"`(\w+)`", sentence)} == OPEN_STATES

    def test_the_glossary_is_in_order(self) -> None:
        words = re.findall(r"^\*\*([^*]+)\*\*", read("docs/glossary.md"), re.MULTILINE)
        assert words == sorted(words, key=str.lower)


def rule_ids() -> set[str]:
    """The ids of the rows, and those in the source with which findings and decisions are made."""
    makers = {"Finding": 1, "transient_if": 1, "Decision": 1, "rules_for": 2, "Row": 0}
    found = {DEFAULT_RULE, *(row.rule for row in TABLE.rows)}
    rooms = (ROOT / "celery_dlq/classify", ROOT / "celery_dlq/worker")
    for path in itertools.chain.from_iterable(room.rglob("*.py") for room in rooms):
        for node in ast.walk(ast.parse(read(path))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = makers.get(node.func.id)
                given = [item.value for item in node.keywords if item.arg == "rule"]
                given += node.args[place : place + 1] if place is not None else []
                found |= {item.value for item in given if isinstance(item, ast.Constant)}
    return found


class TestRules:
    def test_every_rule_is_in_the_reference(self) -> None:
        text = read(REFERENCE / "rules.md")
        ids = rule_ids()
        assert {"os.closed", "http.status", "pg.message", "task.aborted", "default"} <= ids
        assert {rule for rule in ids if f"`{rule}`" not in text} == set()


class TestSchema:
    def test_every_table_and_column_of_a_letter_is_named(self) -> None:
        text = read(REFERENCE / "schema.md")
        names = [*tables.metadata.tables, tables.VERSION_TABLE, *tables.letter.columns.keys()]
        assert [name for name in names if f"`{name}`" not in text] == []
        assert f"The schema is at version {schema.HEAD}." in text

    def test_a_worker_with_fewer_rights_has_one_to_every_table(self) -> None:
        page = read(DOCS / "howto" / "upgrade.md")
        [statements] = re.findall(
            r"^CREATE USER shop_worker PASSWORD.+?```", page, re.DOTALL | re.M
        )
        granted = re.findall(r"celery_\w+", statements)
        assert sorted(granted) == sorted([*tables.metadata.tables, tables.VERSION_TABLE])


class TestFigures:
    text = read("docs/measured.md")

    def test_every_figure_of_the_readme_has_a_row(self) -> None:
        promised = read("README.md").partition("| promise | figure |")[2].partition("\n\n")[0]
        unit = r"(?:s\b|%|tasks|kills|letters|libraries|cases)"
        figures = re.findall(rf"\d[\d,.]*(?: to \d[\d.]*)? {unit}", promised)
        assert len(figures) >= 7
        assert [figure for figure in figures if figure not in self.text] == []

    def test_its_commands_exist(self) -> None:
        named = re.findall(r"`python -m benchmarks (\w+)`", self.text)
        known = re.findall(r'^    "(\w+)": ', read("benchmarks/__main__.py"), re.MULTILINE)
        assert len(known) > 10
        assert named
        assert set(named) <= set(known)
        for path in re.findall(r"python -m pytest(?: -\w)? (\S+)`", self.text):
            assert (ROOT / path).is_file()
        targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
        assert set(re.findall(r"`make ([\w-]+)", self.text)) <= targets


class TestWaysToDie:
    text = read(REFERENCE / "ways_to_die.md")

    def test_the_page_has_exactly_the_rows_of_the_matrix(self) -> None:
        titles = [mode.title for mode in MODES]
        assert len(set(titles)) == len({mode.id for mode in MODES}) == len(titles)
        listed = [row for row in rows(self.text) if len(row) == 7 and row[0]]
        assert [row[0] for row in listed] == titles
        assert [row[1:3] for row in listed] == [[mode.ours, mode.plain] for mode in MODES]

    def test_every_symbol_is_explained(self) -> None:
        assert INTRODUCTION in self.text
        assert {place for place in Place if place not in SYMBOLS} == {Place.LETTER}


class TestPages:
    def test_readme_and_contributing_stay_short(self) -> None:
        assert len(read("README.md").splitlines()) <= 200
        assert len(read("CONTRIBUTING.md").splitlines()) <= 150

    def test_contributing_has_the_rooms_of_the_contract(self) -> None:
        [layers] = re.findall(
            r'name = "the rooms import one way".*?layers = \[(.*?)\]',
            read("pyproject.toml"),
            re.DOTALL,
        )
        [_, drawn, *_] = read("CONTRIBUTING.md").partition("## The rooms")[2].split("```")
        rooms = [line.split("  ")[0] for line in drawn.strip().splitlines()]
        assert rooms == re.findall(r'"(.+?)"', layers)

    def test_the_architecture_names_modules_that_exist(self) -> None:
        named = re.findall(
            r"`([a-z_]+(?:/[a-z_]+)*\.py|[a-z_]+(?:/[a-z_]+)+)`", read("docs/architecture.md")
        )
        package = ROOT / "celery_dlq"
        assert [name for name in named if not any(package.rglob(name))] == []

    @page
    def test_every_relative_link_leads_somewhere(self, path: Path) -> None:
        links = re.findall(r"\]\(([^)\s]+)\)", without_code(read(path)))
        for link in links:
            if re.match(r"https?:", link):
                continue
            target, _, anchor = link.partition("#")
            there = (path.parent / target).resolve() if target else path
            assert there.exists(), link
            assert not anchor or anchor in anchors(read(there)), link

    @page
    def test_no_page_names_a_machine(self, path: Path) -> None:
        assert not re.search(r"/(?:work|root|home|tmp|Users)/", read(path))

    def test_every_page_is_linked_from_the_index(self) -> None:
        text = read("docs/index.md")
        pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if path.stem != "index"]
        assert [str(path) for path in pages if f"({path})" not in text] == []

    def test_texts_of_the_code_name_topics_and_no_files_of_the_documentation(self) -> None:
        """An installed package has no such files where people would look for them."""
        texts = [text for path in (ROOT / "celery_dlq").rglob("*.py") for text in texts_of(path)]
        assert [text for text in texts if re.search(r"[\w-]\.md\b|\bdocs/\w", text)] == []

    def test_every_topic_that_the_code_names_exists(self) -> None:
        code = "".join(read(path) for path in (ROOT / "celery_dlq").rglob("*.py"))
        named = re.findall(r"celery dlq help ([a-z][\w-]+)", code)
        named += re.findall(r"""\bpage\(["']([\w-]+)["']\)""", code)
        assert {"settings", "repair-letters", "flower"} <= set(named)
        assert set(named) <= set(find_pages())

    def test_every_make_target_that_is_named_exists(self) -> None:
        targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
        for path in PAGES:
            named = re.findall(r"`make ([\w-]+)`", read(path))
            for block in blocks(read(path), "[a-z]*"):
                named += re.findall(r"^(?:.*&& )?make ([\w-]+)$", block, re.MULTILINE)
            assert set(named) <= targets, path.name

    def test_the_changes_know_this_version(self) -> None:
        (version,) = re.findall(r'^version = "(.+)"$', read("pyproject.toml"), re.MULTILINE)
        assert version == celery_dlq.__version__
        assert f"## [{version}]" in read("CHANGELOG.md")
        assert f"| {version} |" in read("SECURITY.md")


def texts_of(path: Path) -> Iterator[str]:
    """The strings of a module; of the documentation of modules and functions, which no error shows, only
    that of classes."""
    tree = ast.parse(read(path))
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.FunctionDef)) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}
