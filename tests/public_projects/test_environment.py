"""What adopting changes, and what a run says of it, without installing anything."""

import pytest
from public_projects.environment import NotInstalled, apply
from public_projects.run import main, problems
from public_projects.table import PROJECTS, Edit, Project

EDIT = Edit("tasks.py", "import a\n", "import a\nimport b\n")
PROJECT = Project(
    "shop", "1.0", "", "", "", (EDIT, Edit("app.py", "App()", "App(1)")), (), lines_in_app=2
)

EXPECTED = {"exception": "ValueError", "verdict": "terminal", "reason": "terminal"}
LETTER = {
    "task": "shop.charge", "exception_type": "shop.ValueError", "message": "no", "verdict": "terminal",
    "reason": "terminal", "expected": EXPECTED, "state": "resolved", "again": "",
}  # fmt: skip
PLAYED = {"letters": [LETTER], "secret_sent": True, "secret_shown": False}


def test_lines_that_are_changed_or_added_are_counted():
    assert PROJECT.lines_changed == 1 + 1 + 2


def test_an_edit_is_made_once(tmp_path):
    (tmp_path / "tasks.py").write_text("import a\nrest\n")
    apply(EDIT, tmp_path)
    assert (tmp_path / "tasks.py").read_text() == "import a\nimport b\nrest\n"


@pytest.mark.parametrize("text", ["", "import a\nimport a\n"])
def test_an_edit_that_does_not_fit_is_an_error(tmp_path, text):
    (tmp_path / "tasks.py").write_text(text)
    with pytest.raises(NotInstalled, match=r"not once; change it in table\.py"):
        apply(EDIT, tmp_path)
    assert (tmp_path / "tasks.py").read_text() == text


def test_a_letter_as_expected_is_no_problem():
    assert problems(PLAYED) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exception_type": "KeyError"}, "'exception': 'KeyError'"),
        ({"verdict": "transient"}, "'verdict': 'transient'"),
        ({"reason": "exhausted"}, "'reason': 'exhausted'"),
        ({"state": "dead", "again": "not sent"}, "dead after its redrive: not sent"),
    ],
)
def test_another_letter_is_a_problem(changes, said):
    [problem] = problems({**PLAYED, "letters": [{**LETTER, **changes}]})
    assert problem.startswith("shop.charge: ")
    assert said in problem


def test_a_secret_is_sent_and_not_shown():
    assert problems({**PLAYED, "secret_sent": False, "secret_shown": True}) == [
        "No message carries the secret.",
        "A screen shows the secret.",
    ]


def test_an_unknown_name_is_an_error(capsys):
    assert main(["shop"]) == 2
    assert f"Unknown: shop. There are: {', '.join(PROJECTS)}." in capsys.readouterr().err
