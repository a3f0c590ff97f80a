"""The end of a process of prefork, as billiard 4.2 and billiard 4.3 show it."""

from types import SimpleNamespace

import pytest
from billiard import common

from celery_dlq.worker.celery_quirks.pools import is_terminated


@pytest.mark.parametrize("version", ["the installed one", "4.2"])
def test_a_process_is_terminated_when_its_handler_has_run(version, monkeypatch):
    flag = [False]
    monkeypatch.setattr(common, "_should_have_exited", flag)
    monkeypatch.setattr(common, "maybe_setsignal", lambda *_: None)
    billiard = SimpleNamespace(_should_have_exited=flag) if version == "4.2" else common
    assert not is_terminated(billiard)
    with pytest.raises(SystemExit):
        common._shutdown_cleanup(15, None)
    assert is_terminated(billiard)


def test_a_later_billiard_is_asked_by_its_function():
    assert is_terminated(SimpleNamespace(terminate_handler_fired=lambda: True))
