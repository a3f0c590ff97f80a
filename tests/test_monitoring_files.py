"""What monitoring/ ships asks for metrics that exist, by labels that they have."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import promql_parser as promql
import pytest
import yaml

from celery_dlq.cli import dlq
from celery_dlq.cli.exits import NamingGroup
from celery_dlq.metrics.families import HISTOGRAM, STORE_FAMILIES, WORKER_FAMILIES

MONITORING = Path(__file__).parents[1] / "monitoring"
PROMETHEUS = MONITORING / "prometheus"
COMPOSE = MONITORING.parent / "docker-compose.yml"

#: What Prometheus itself adds to every sample.
TARGET = {"instance", "job"}


def exposed() -> dict[str, set[str]]:
    """The labels of every name that Prometheus stores."""
    names: dict[str, set[str]] = {}
    for one in (*STORE_FAMILIES, *WORKER_FAMILIES):
        if one.kind == HISTOGRAM:
            names |= {f"{one.name}_{part}": {*one.labels, *TARGET} for part in ("count", "sum")}
            names[f"{one.name}_bucket"] = {*one.labels, *TARGET, "le"}
        else:
            names[one.name] = {*one.labels, *TARGET}
    return names


EXPOSED = exposed()


def read(name: str) -> Any:
    return yaml.safe_load((PROMETHEUS / name).read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    return [rule for group in read("alerts.yml")["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    path = MONITORING / "grafana/dashboards/celery_dlq.json"
    return json.loads(path.read_text(encoding="utf-8"))


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Any]:
    for rule in rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in panels():
        for target in panel["targets"]:
            # The one variable of the dashboard that stands in queries.
            expression = target["expr"].replace("$task", ".*")
            yield pytest.param(expression, id=f"{panel['title']} {target['refId']}")


def parts(expression: str) -> list[Any]:
    found: list[Any] = []
    promql.walk(promql.parse(expression), found.append)
    return found


@pytest.mark.parametrize("expression", list(queries()))
def test_every_query_asks_for_what_there_is(expression: str) -> None:
    nodes = parts(expression)
    selectors = [node for node in nodes if isinstance(node, promql.VectorSelector)]
    assert selectors
    for selector in selectors:
        assert selector.name in EXPOSED
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= EXPOSED[selector.name]
    kept = set.intersection(*(EXPOSED[selector.name] for selector in selectors))
    for node in nodes:
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= kept


def test_a_query_for_what_there_is_not_would_be_noticed() -> None:
    [selector] = [
        node for node in parts("celery_dlq_size[5m]") if isinstance(node, promql.VectorSelector)
    ]
    assert selector.name not in EXPOSED


class TestAlerts:
    def test_a_gauge_is_never_taken_for_a_counter(self) -> None:
        counters = {
            one.name for one in (*STORE_FAMILIES, *WORKER_FAMILIES) if one.kind == "counter"
        }
        for rule in rules():
            for name in re.findall(r"(?:rate|increase)\((\w+)", rule["expr"]):
                assert name in counters

    def test_each_says_how_bad_it_is_and_what_to_do(self) -> None:
        for rule in rules():
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}

    def test_each_is_tested_where_it_fires(self) -> None:
        fired = {
            check["alertname"]
            for test in read("alerts_test.yml")["tests"]
            for check in test["alert_rule_test"]
            if check["exp_alerts"]
        }
        assert fired == {rule["alert"] for rule in rules()}

    @pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
    def test_the_commands_that_are_named_exist(self, rule: dict[str, Any]) -> None:
        for line in re.findall(r"celery -A <app> dlq (.*)", rule["annotations"]["description"]):
            words = shlex.split(re.sub(r"{{.*?}}", "x", line))
            command: click.Command | None = dlq
            while isinstance(command, click.Group) and words and words[0][0] != "-":
                command, words = command.get_command(click.Context(command), words[0]), words[1:]
            if isinstance(command, NamingGroup):
                command = command.get_command(click.Context(command), command.alone)
            assert command is not None
            command.make_parser(click.Context(command)).parse_args(list(words))

    def test_promtool_agrees(self) -> None:
        ran = subprocess.run(
            [promtool(), "test", "rules", str(PROMETHEUS / "alerts_test.yml")],
            capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr


def promtool() -> str:
    """Prometheus' own tool; ``make services`` fetches it."""
    fetched = MONITORING.parent / ".cache/promtool"
    found = shutil.which("promtool") or (str(fetched) if fetched.exists() else None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("there is no promtool; run: make services")
    if found is None:
        pytest.skip("there is no promtool here; the tests above read the rules themselves")
    return found


class TestDashboard:
    def test_panels_have_numbers_of_their_own_and_do_not_overlap(self) -> None:
        every = dashboard()["panels"]
        assert len({panel["id"] for panel in every}) == len(every)
        places = [
            (column, line)
            for panel in every
            for at in [panel["gridPos"]]
            for column, line in itertools.product(
                range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
            )
        ]
        assert len(set(places)) == len(places)
        assert max(column for column, _ in places) == 23

    def test_legends_name_labels_that_the_query_keeps(self) -> None:
        for panel in panels():
            for target in panel["targets"]:
                for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                    assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)", target["expr"])

    def test_every_panel_asks_the_source_that_is_chosen(self) -> None:
        source = {"type": "prometheus", "uid": "${datasource}"}
        assert all(panel["datasource"] == source for panel in panels())
        assert "datasource" in [one["name"] for one in dashboard()["templating"]["list"]]


class TestCompose:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]

    def test_every_scraped_service_is_started(self) -> None:
        for job in read("prometheus.yml")["scrape_configs"]:
            for target in itertools.chain(*(one["targets"] for one in job["static_configs"])):
                name, _, port = target.partition(":")
                published = [entry.rpartition(":")[2] for entry in self.services[name]["ports"]]
                assert port in published

    def test_rules_and_dashboards_are_where_the_images_look_for_them(self) -> None:
        mounts = dict(
            mount.removesuffix(":ro").split(":")
            for name in ("prometheus", "grafana")
            for mount in self.services[name]["volumes"]
            if mount.startswith("./")
        )
        assert mounts["./monitoring/prometheus"] == "/etc/prometheus"
        assert mounts["./monitoring/grafana/provisioning"] == "/etc/grafana/provisioning"
        dashboards = mounts["./monitoring/grafana/dashboards"]
        provisioning = MONITORING / "grafana/provisioning"
        provider = yaml.safe_load((provisioning / "dashboards/celery_dlq.yml").read_text())
        assert provider["providers"][0]["options"]["path"] == dashboards
        [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
            "datasources"
        ]
        assert source["url"] == "http://prometheus:9090"
        assert [(PROMETHEUS / name).exists() for name in read("prometheus.yml")["rule_files"]] == [
            True
        ]
