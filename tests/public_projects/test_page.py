"""The page keeps what a run of some projects does not know."""

from dataclasses import replace

from public_projects.page import Result, page, save, saved

ONE = Result(
    "shop", "1.0", "Django application", "`throws`", 3, passed_before=10, passed_after=9, differ=1, letters=5,
    groups=2, redriven=5, seconds=61.4, date="2026-11-29",
    causes=(("shop.charge", "ValueError", "terminal, terminal", "python.error"),),
    expected={"jitter is drawn in float seconds": ("tests/test_shop.py::test_wait",)},
)  # fmt: skip
OTHER = replace(ONE, name="bank", passed_before=0, passed_after=0, differ=0, expected={})


def test_a_row_and_a_section():
    text = page("", [ONE])
    assert (
        "| `shop` | 1.0 | Django application | `throws` | 3 | 10 and 9 pass | 1 | 5 | 2 | 5 | 61 |"
        in text
    )
    assert "### shop\n" in text
    assert "| `shop.charge` | `ValueError` | terminal, terminal | `python.error` |" in text
    assert "because jitter is drawn in float seconds: `tests/test_shop.py::test_wait`." in text


def test_a_run_of_one_project_keeps_the_others():
    both = page("", [ONE, OTHER])
    assert "has none" in both
    assert page(both, []) == both
    assert page(both, [replace(ONE, version="2.0")]) == both.replace(
        "| `shop` | 1.0 |", "| `shop` | 2.0 |"
    )


def test_results_are_kept(tmp_path):
    save(ONE, tmp_path)
    [read] = saved(tmp_path)
    assert page("", [read]) == page("", [ONE])
