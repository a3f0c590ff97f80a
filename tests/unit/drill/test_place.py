"""The tables, the queue and the files of a drill."""

import sqlite3

import pytest
from celery import Celery

from celery_dlq.drill import place
from celery_dlq.errors import DrillError, SettingsError
from celery_dlq.store.sql import SQLStore

NAME = "celery_dlq_drill_12345678"


def an_app(broker="memory://", **conf):
    app = Celery("unit", broker=broker, set_as_current=False)
    app.conf.update(conf)
    return app


def test_tables_are_in_a_file_beside_the_store_and_nothing_is_left(tmp_path):
    (tmp_path / "shop.sqlite3").write_text("the app's own")
    with place.own_tables(f"sqlite:///{tmp_path}/shop.sqlite3", NAME) as url:
        store = SQLStore(url)
        store.check_schema()
        store.close()
        assert (tmp_path / f"{NAME}.sqlite3").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["shop.sqlite3"]
    assert (tmp_path / "shop.sqlite3").read_text() == "the app's own"


def test_a_store_url_that_is_none_is_an_error():
    with pytest.raises(SettingsError), place.own_tables("shop", NAME):
        pass


def test_given_tables_are_removed_and_those_of_a_store_refused(tmp_path):
    url = f"sqlite:///{tmp_path}/given.sqlite3"
    with place.given_tables(url) as given:
        SQLStore(given).check_schema()
    with sqlite3.connect(tmp_path / "given.sqlite3") as left:
        assert left.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == []
    left.close()
    SQLStore(url).check_schema()
    with pytest.raises(DrillError, match="name an empty one"), place.given_tables(url):
        pass
    SQLStore(url).check_schema()


def test_a_directory_is_where_workers_would_make_theirs_and_nothing_is_left(tmp_path):
    with place.own_directory(str(tmp_path / "spool" / "recorder"), NAME) as path:
        assert path == str(tmp_path / NAME)
        (tmp_path / NAME / "inside").mkdir(parents=True)
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "spool").mkdir()
    with place.own_directory(str(tmp_path / "spool"), NAME) as path:
        assert path == str(tmp_path / "spool" / NAME)
    assert [*tmp_path.iterdir()] == [tmp_path / "spool"]


def test_messages_have_a_place_of_their_own_on_each_broker(tmp_path):
    app = an_app("redis://", broker_transport_options={"global_keyprefix": "shop:"})
    assert place.own_options(app, NAME, "") == {"global_keyprefix": f"shop:{NAME}:"}
    assert place.own_options(an_app("amqp://"), NAME, "") == {}
    files = place.own_options(an_app("filesystem://"), NAME, str(tmp_path))
    assert set(files.values()) == {str(tmp_path / "messages"), str(tmp_path / "control")}
    with pytest.raises(DrillError, match="give the app a broker"):
        place.own_options(an_app(), NAME, "")


def test_the_queue_is_of_the_kind_of_the_apps_default_queue():
    assert place.kind_of_queue(an_app()) == ("direct", {})
    quorum = an_app(task_default_queue_type="quorum", task_default_exchange_type="topic")
    assert place.kind_of_queue(quorum) == ("topic", {"x-queue-type": "quorum"})


@pytest.mark.parametrize(
    "broker",
    [
        "sentinel://a:1;sentinel://b:1", "sentinel://a:1/", "redis://a:1/0;redis://b:1/0",
        "redis+socket:///run/redis.sock", "filesystem://", "redis://127.0.0.1:1/0",
    ],
)  # fmt: skip
def test_a_broker_without_one_address_that_answers_cannot_be_cut(broker, no_pauses):
    with place.cuttable_broker(an_app(broker), broker) as (cutter, url):
        assert (cutter, url) == (None, broker)


def test_a_file_is_locked_and_unlocked(tmp_path):
    url = f"sqlite:///{tmp_path}/own.sqlite3"
    SQLStore(url).check_schema()
    with place.cuttable_store(url) as (cutter, same):
        assert same == url
        other = sqlite3.connect(tmp_path / "own.sqlite3", timeout=0, isolation_level=None)
        cutter.cut()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        cutter.restore()
        other.execute("BEGIN IMMEDIATE")
        other.close()


def test_a_server_that_does_not_answer_cannot_be_cut():
    away = "postgresql+psycopg://root@127.0.0.1:1/shop"
    with place.cuttable_store(away) as (cutter, url):
        assert (cutter, url) == (None, away)
