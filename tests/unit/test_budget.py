"""The last line of ``make test``."""

from collections import Counter

import pytest
from support.budget import BUDGET_MIN, kind_of, line_of


@pytest.mark.parametrize(
    ("nodeid", "kind"),
    [
        ("tests/unit/cli/letters/test_list.py::test_one[a/b]", "unit/cli"),
        ("tests/unit/test_codec.py::test_one", "unit"),
        ("tests/integration/redrive/test_once.py::test_one", "integration/redrive"),
        ("tests/store/letters/test_saving.py::test_one", "store"),
        ("tests/test_docs.py::TestPages::test_one", "test_docs"),
    ],
)
def test_a_kind_is_a_ring_or_a_room_of_a_large_one(nodeid, kind):
    assert kind_of(nodeid) == kind


def test_the_line_names_the_slowest_kinds_first():
    spent = Counter({f"kind{n}": n * 60.0 for n in range(1, 9)})
    said = line_of(spent, 9.96)
    assert said.startswith(
        "gate 10.0 min; slowest kinds, in minutes of one process: kind8 8.0, kind7"
    )
    assert said.count(",") == 6
    assert "kind2" not in said


def test_a_gate_that_takes_too_long_says_so():
    assert f"which is over its budget of {BUDGET_MIN};" in line_of(Counter(), BUDGET_MIN + 1)
