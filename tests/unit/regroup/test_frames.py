import pytest

from celery_dlq.regroup.frames import candidates, import_path
from celery_dlq.worker.failure import app_frames, traceback_text

IN_SHOP = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/srv/app/shop/tasks.py", line 3, in charge
    parse(amount)
  File "/srv/app/shop/money/__init__.py", line 7, in parse
    int(text)
ValueError: invalid
"""


def test_the_frames_are_among_the_candidates():
    found = candidates(IN_SHOP, ())
    assert ("shop.tasks:charge", "shop.money:parse") in found
    assert () in found
    assert len(found) == len(set(found)) < 10
    assert not any("celery" in name for frames in found for name in frames)


def test_the_import_path_of_this_process_comes_first():
    found = candidates(IN_SHOP, ("/srv/app", "/srv"))
    assert found[0] == ("shop.tasks:charge", "shop.money:parse")


def test_frames_below_several_directories():
    text = IN_SHOP.replace("/srv/app/shop/money", "/srv/lib/acme/money")
    assert candidates(text, ("/srv/app", "/srv/lib"))[0] == (
        "shop.tasks:charge", "acme.money:parse",
    )  # fmt: skip


def test_only_the_last_traceback_counts():
    text = IN_SHOP + "\nThe above exception was the direct cause of the following exception:\n\n"
    text += IN_SHOP.replace("charge", "refund")
    assert candidates(text, ("/srv/app",))[0] == ("shop.tasks:refund", "shop.money:parse")


def test_a_failure_inside_libraries_has_their_frames():
    text = IN_SHOP.replace("/srv/app", "/opt/venv/lib/python3.12/site-packages")
    assert candidates(text, ())[0] == (
        "celery.app.trace:trace_task", "shop.tasks:charge", "shop.money:parse",
    )  # fmt: skip


def test_a_line_that_is_repeated_counts_repeatedly():
    line = '  File "/srv/app/shop/tasks.py", line 3, in charge\n    charge()\n'
    text = (
        f"Traceback (most recent call last):\n{line * 3}  [Previous line repeated 970 more times]\n"
    )
    assert candidates(text + "RecursionError\n", ("/srv/app",))[0] == ("shop.tasks:charge",) * 5


def test_a_path_of_another_system():
    text = IN_SHOP.replace("/srv/app/shop/", "C:\\\\app\\\\shop\\\\").replace("\\\\", "\\")
    text = text.replace("money/__init__", "money\\__init__")
    assert ("shop.tasks:charge", "shop.money:parse") in candidates(text, ())


@pytest.mark.parametrize(
    "text", ["", "no traceback", "Traceback (most recent call last):\n", "\x00"]
)
def test_a_text_without_frames(text):
    assert candidates(text, ("/srv",)) == ((),)


def fails(depth):
    if depth:
        fails(depth - 1)
    raise KeyError("x")


@pytest.mark.parametrize("depth", [0, 2, 60])
def test_real_tracebacks_lead_to_the_frames_of_capture(depth):
    try:
        fails(depth)
    except KeyError as error:
        names, text = app_frames(error), traceback_text(error)
    assert names[-5:] in candidates(text, import_path())
