import sys

import pytest

from celery_dlq import Rule
from celery_dlq.classify import misnamed, rules_for


@pytest.fixture
def shop(tmp_path, monkeypatch):
    package = tmp_path / "shop_of_names"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "errors.py").write_text(
        "class Busy(Exception):\n    class Very(Exception): pass\nLIMIT = 3\n"
    )
    (package / "broken.py").write_text("1 / 0\n")
    (package / "needy.py").write_text("import no_such_library_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "shop_of_names"
    for name in [name for name in sys.modules if name.startswith("shop_of_names")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["errors.Busy", "errors.Busy.Very", "errors.*", "*"])
def test_names_that_can_be_imported_are_right(shop, name):
    assert list(misnamed([Rule(f"{shop}.{name}", "transient")])) == []
    assert f"{shop}.errors" in sys.modules or name == "*"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("errors.Bussy", "not an exception class that can be imported"),
        ("errors.LIMIT", "not an exception class that can be imported"),
        ("errors.Busy.Not", "not an exception class that can be imported"),
        ("erors.Busy", "not an exception class that can be imported"),
        ("erors.*", "does not name an installed module"),
        ("broken.Busy", "ZeroDivisionError"),
        ("needy.Busy", "Install the missing package"),
        ("needy.*", "Install the missing package"),
    ],
)
def test_other_names_are_reported_with_the_name_of_the_setting(shop, name, problem):
    spec = f"{shop}.{name}"
    (said,) = misnamed(rules_for(["KeyError", spec], "transient", "dlq_transient"))
    assert said.startswith("dlq_transient: ")
    assert problem in said
    (said,) = misnamed([Rule((KeyError, spec), "terminal", name="mine")])
    assert said.startswith("dlq_rules, mine: ")
