"""The doctor where the broker's client is not installed."""

from celery_dlq.cli.doctor import command


def _broker(_session):
    raise ModuleNotFoundError("No module named 'redis'")
    yield


def test_it_names_the_extra_once(run, app, monkeypatch):
    app.conf.broker_url = "redis://"
    monkeypatch.setattr(command, "CHECKS", [("broker", True, _broker), ("stalled", False, _broker)])
    ended = run("doctor")
    assert ended.exit_code == 1
    said = " ".join(ended.stdout.split())
    assert said.count("pip install 'celery-dlq[redis]'") == 1
    assert "not checked, for the same reason: stalled" in said
