"""The Grafana dashboard shows every metric of a real operator, and no other."""

import json
import math
import re
from itertools import combinations
from typing import Any

import pytest

from testbed import ROOT
from testbed.support.promql import evaluate, lasting
from testbed.support.scrapes import Scrape
from testbed.support.stages import Stage
from testbed.support.waiting import wait_for
from testbed.support.workloads import Workloads, pool, workload
from tests.handlers.telemetry.test_metrics import counted, documented, every_state, leads

FILE = ROOT / "deploy/helm/files/dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
# The values that Grafana substitutes for variables.
VARIABLES = {"$namespace": ".*", "$__rate_interval": "5m"}
SUFFIX = re.compile(r"_(bucket|count|sum)$")


def expressions() -> list[str]:
    """Return every expression as Grafana sends it: with values for the variables."""
    found = [target["expr"] for target in TARGETS]
    for variable, value in VARIABLES.items():
        found = [each.replace(variable, value) for each in found]
    return found


@pytest.mark.server
def test_every_metric_is_shown_and_no_other() -> None:
    answers = evaluate([], expressions())
    shown = {SUFFIX.sub("", name) for answer in answers for name in answer.metrics}
    standard = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    assert shown == documented().keys() | standard


async def test_every_panel_has_data(stage: Stage) -> None:
    operator = stage.operator(METRICS_BY_NAMESPACE="true")
    leads(operator)
    before = Scrape.of(operator)
    workloads = Workloads(stage.resources)
    workloads.apply(workload("undoers"), pool("undoers", "payments:compensation"))
    await every_state(stage)
    counted(operator)
    wait_for(lambda: bool(Scrape.of(operator).by("pool", "jobgroup_pool_replicas")))
    after = Scrape.of(operator)
    history = [*lasting({"one": before}, 600), *lasting({"one": after}, 120)]
    for expression, answer in zip(expressions(), evaluate(history, expressions()), strict=True):
        values = [value for _, value in answer.points[-1] if not math.isnan(value)]
        assert values, f"nothing to show: {expression}"


def test_every_panel_has_a_description_and_a_data_source() -> None:
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "namespace"}


def test_no_panels_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(place["x"] + place["w"] <= 24 for place in places)
