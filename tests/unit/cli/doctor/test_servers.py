"""The doctor about the servers of a store that has several."""

import pytest

pytestmark = pytest.mark.service


@pytest.fixture
def found(app, run, monkeypatch):
    """Gives the level and text of each of the check's lines, with this URL."""

    def found(url):
        app.conf.dlq_store_url = url
        lines = [line.split(maxsplit=2) for line in run("doctor").stdout.splitlines()[1:]]
        return [(level, text) for name, level, text in lines if name == "servers"]

    return found


def test_a_store_with_one_server_gets_no_line(found, own_postgres_url):
    assert found(own_postgres_url) == []


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_each_server_is_named_with_its_state(found, request, kind):
    url = request.getfixturevalue(f"own_{kind}_url")
    server = url.rpartition("@")[2].partition("/")[0]
    away, first, second = found(url.replace(server, f"127.0.0.1:1,{server},{server}"))
    assert away[0] == "warning"
    assert away[1].startswith("127.0.0.1:1 could not take over: The dead-letter store at ")
    assert "cannot be used" in away[1]
    assert first == ("ok", f"{server} accepts writes, and is used")
    assert second == ("ok", f"{server} accepts writes, too")
