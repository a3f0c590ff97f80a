import os
import subprocess
import sys

from celery_dlq.base.process import identity, lives, pid_of, pid_of_run


def test_this_process_lives_and_tells_its_id():
    assert lives(identity())
    assert pid_of(identity()) == os.getpid()


def test_another_process_lives_until_it_ends():
    code = "from celery_dlq.base.process import identity; print(identity(), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        named = child.stdout.readline().strip()
        assert pid_of(named) == child.pid
        assert lives(named)
        child.kill()
    assert not lives(named)


def test_a_process_id_that_is_used_again_is_not_the_same_process():
    before, _, _started = identity().rpartition(":")
    assert not lives(f"{before}:1")


def test_of_another_machine_nothing_is_known():
    assert not lives("another-boot/1:1:99")
    for nonsense in ("", ":", "::", "a:b:c"):
        assert not lives(nonsense)
        assert pid_of(nonsense) is None


def test_a_run_was_in_the_process_that_its_pool_names():
    assert pid_of_run(4711) == 4711


def test_a_greenlet_or_a_run_that_never_began_was_in_this_one():
    greenlet = object()
    assert pid_of_run(id(greenlet)) == pid_of_run(None) == os.getpid()
