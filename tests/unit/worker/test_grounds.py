import json
import subprocess
import sys
import textwrap

import pytest

from celery_dlq import Rule, Terminal, Verdict
from celery_dlq.base.codec import decode_table
from celery_dlq.classify import Classifier, decide
from celery_dlq.model.fingerprint import FRAME_LIMIT
from celery_dlq.worker.grouping import grounds_of


def caught(function, *args):
    try:
        function(*args)
    except BaseException as exc:
        # Without the frame of this function.
        return exc.with_traceback(exc.__traceback__.tb_next)
    raise AssertionError("nothing was raised")


def functions(frames):
    return [name.split(":")[1] for name in frames]


def made(source, name="fails", path="/srv/shop/orders.py"):
    """A function of a user's module, of which there is no file."""
    names = {"__name__": "orders"}
    exec(compile(textwrap.dedent(source), path, "exec"), names)
    return names[name]


def lines_of(source, *args):
    return grounds_of(caught(made(source), *args)).lines


def test_frames_are_the_users_own():
    grounds = grounds_of(caught(lambda: json.loads("{")))
    assert (functions(grounds.frames), grounds.is_own) == (["<lambda>"], True)


@pytest.mark.parametrize(
    "path", ["/srv/celery_dlq/shop/orders.py", "/srv/celery_dlq/celery_dlq.py"]
)
def test_a_users_folder_may_have_the_packages_name(path):
    charge = made("def charge():\n    raise ValueError", "charge", path)
    assert grounds_of(caught(charge)).frames == ("orders:charge",)


def test_the_packages_own_frames_are_not_the_users():
    assert functions(grounds_of(caught(lambda: decode_table("{"))).frames) == ["<lambda>"]


def test_a_failure_wholly_inside_libraries_has_their_frames_and_its_message():
    exc = caught(lambda: json.loads("{"))
    grounds = grounds_of(exc.with_traceback(exc.__traceback__.tb_next))
    assert grounds.frames[-1] == "json.decoder:raw_decode"
    assert (grounds.is_own, grounds.lines, grounds.needs_message) == (False, (), True)


def test_an_exception_inside_a_wrapper_is_meant():
    def wraps():
        raise Terminal(KeyError("x"))

    grounds = grounds_of(caught(wraps))
    assert functions(grounds.frames) == ["wraps"]
    assert grounds.causes == ()


def test_only_the_innermost_frames_are_kept():
    source = "\n".join(f"def f{n}(): f{n + 1}()" for n in range(9)) + "\ndef f9(): raise ValueError"
    frames = grounds_of(caught(made(source, "f0"))).frames
    assert functions(frames) == [f"f{n}" for n in range(10 - FRAME_LIMIT, 10)]


def test_the_depth_of_a_recursion_does_not_count():
    source = """
        def fails(depth):
            if depth:
                fails(depth - 1)
            raise ValueError(depth)
    """
    grounds = {grounds_of(caught(made(source), depth)) for depth in (0, 1, 7)}
    assert len(grounds) == 1


def test_where_an_endless_recursion_ends_does_not_count():
    source = "def fails(): other()\ndef other(): fails()"
    grounds = {grounds_of(caught(made(source, name))) for name in ("fails", "other")}
    assert len(grounds) == 1


RAISES = """
    def fails(order):
        if order == 1:
            raise ValueError(f"no currency in {order}")
        if order == 2:
            raise ValueError(f"no country in {order}")
        if order == 3:
            raise KeyError
        if order == 4:
            raise KeyError
        raise LookupError("no such order", order)
"""


def test_raise_statements_of_one_function_differ():
    lines = [lines_of(RAISES, order) for order in range(1, 6)]
    assert len(set(lines)) == 5
    assert lines[4] == ("raise LookupError order",)


def test_an_edit_elsewhere_and_other_literals_do_not_count():
    edited = RAISES.replace("def fails", "import math\n\n    def unused(): pass\n\n    def fails")
    edited = edited.replace("no such order", "there is no such order")
    assert [lines_of(edited, order) for order in (1, 3, 5)] == [
        lines_of(RAISES, order) for order in (1, 3, 5)
    ]


def test_a_raise_that_is_added_before_others_leaves_their_lines_alone():
    more = (
        'if order == 0:\n            raise ValueError(f"no order {order}")\n        if order == 1:'
    )
    edited = RAISES.replace("if order == 1:", more)
    assert lines_of(edited, 2) == lines_of(RAISES, 2)


def test_the_line_that_calls_a_helper_counts():
    source = """
        def require(value, name):
            if value is None:
                raise LookupError(name)

        def fails(order):
            require(order.get("city"), "city") if "city" in order else None
            require(order.get("country"), order)
    """
    assert lines_of(source, {"city": None}) != lines_of(source, {"country": None})


def test_a_long_line_is_cut():
    source = f"def fails():\n    raise ValueError({', '.join(f'name{n}' for n in range(99))})"
    (line,) = lines_of(f"{source}\n" + "\n".join(f"name{n} = {n}" for n in range(99)))
    assert len(line) == 200


@pytest.mark.parametrize("options", [[], ["-O"], ["-OO"]])
def test_the_source_is_not_needed(tmp_path, options):
    """A module whose source was deleted, and one whose source was replaced while it runs."""
    code = tmp_path / "orders.py"
    code.write_text(textwrap.dedent(RAISES))
    run = f"""
        import sys, linecache
        sys.path.insert(0, {str(tmp_path)!r})
        from orders import fails
        from celery_dlq.worker.grouping import grounds_of
        from pathlib import Path
        kept = Path({str(code)!r}).read_text()
        found = []
        for text in (kept, None, "# another release\\n" * 40 + kept):
            Path({str(code)!r}).unlink(missing_ok=True)
            if text is not None:
                Path({str(code)!r}).write_text(text)
            linecache.clearcache()
            try:
                fails(2)
            except ValueError as exc:
                found.append(grounds_of(exc))
        print(len(set(found)), found[0].lines)
    """
    said = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(run)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.startswith("1 "), said.stdout


def test_lines_are_the_same_in_each_process(tmp_path):
    """Sets are literals, too, and have another order in each process."""
    source = """
        def fails(order):
            if order in {"a", "b", "c"}:
                raise ValueError(order in {"a", "b", "c"}, "one")
            raise ValueError(order in {"a", "b", "c"}, "two")
    """
    (tmp_path / "orders.py").write_text(textwrap.dedent(source))
    run = (
        "from orders import fails\nfrom celery_dlq.worker.grouping import grounds_of\n"
        "try: fails('a')\nexcept ValueError as exc: print(grounds_of(exc).lines)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", run], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
        ).stdout
        for seed in "123456"
    }  # fmt: skip
    assert len(said) == 1


class PaymentError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.error_code = code


@pytest.mark.parametrize(
    ("exc", "evidence"),
    [
        (PaymentError("card_expired"), ("error_code=card_expired",)),
        (PaymentError(17), ("error_code=17",)),
        (PaymentError("no card of Ada"), ()),
        (PaymentError(True), ()),
        (PaymentError(10**5_000), ()),
        (PaymentError("x" * 41), ()),
        (SystemExit(3), ("code=3",)),
        (FileNotFoundError(2, "no such file"), ("errno=2",)),
        (ValueError("404"), ()),
    ],
)
def test_codes_are_evidence(exc, evidence):
    assert grounds_of(exc).evidence == evidence


def test_the_evidence_of_a_wrapped_exception_counts():
    def fails(error):
        raise RuntimeError("cannot pay") from error

    grounds = grounds_of(caught(fails, PaymentError("card_expired")))
    assert (grounds.evidence, grounds.causes) == (
        ("error_code=card_expired",), (f"{__name__}.PaymentError",)
    )  # fmt: skip


def test_an_error_in_a_handler_is_one_cause_whatever_was_handled():
    def fails(error):
        try:
            raise error
        except Exception:
            None.undo()

    assert len({grounds_of(caught(fails, one)) for one in (KeyError(), OSError())}) == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="ExceptionGroup is newer")
def test_the_members_of_a_group_count_in_any_order():
    def fails(*members):
        raise ExceptionGroup("several", members)  # noqa: F821

    one = grounds_of(caught(fails, KeyError(), ValueError(), ValueError()))
    assert one == grounds_of(caught(fails, ValueError(), KeyError()))
    assert one.causes == ("KeyError", "ValueError")


class Hostile(Exception):
    @property
    def code(self):
        raise SystemExit

    @property
    def errno(self):
        return object()

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_a_hostile_exception_has_grounds():
    assert grounds_of(caught(made("def fails(error): raise error"), Hostile())).evidence == ()


def test_a_rule_of_the_user_does_not_change_the_evidence():
    error = FileNotFoundError(2, "no such file")
    by_user = Classifier((Rule(FileNotFoundError, Verdict.TRANSIENT, name="files"),)).decide(error)
    assert by_user.rule == "files"
    assert grounds_of(error, by_user) == grounds_of(error, decide(error)) == grounds_of(error)
