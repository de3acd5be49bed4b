"""Alert rules and expressions over scrapes of operators, evaluated by Prometheus' own engine.

A history is a list of scrapes of each replica. Time passes only in the engine, so a rule that must
hold for an hour can be tested in seconds.
"""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed import TESTBED
from testbed.build.modules import Module
from testbed.servers.processes import leashed
from testbed.support.scrapes import Scrape

MODULE = Module(
    folder=TESTBED / "go-promql",
    version="promql-v0.315.0",
    packages={"promql": "./promql"},
    linker_flags="-s -w",
    minutes=2,
)
STEP_SECONDS = 30
# The label `job` of the Service that Prometheus scrapes, in every namespace that has one.
JOB = "jobgroup-operator"
NAMESPACE = "jobgroups"

# The scrape of each replica at one step; there is none of a replica that is down. The name of a
# replica of another operator includes its namespace, as in elsewhere/replica.
Moment = Mapping[str, Scrape]
Labels = dict[str, str]


def engine() -> Path:
    """Return the path of the evaluating program; build it if necessary."""
    return MODULE.ensure("promql") / "promql"


@dataclass(frozen=True)
class Answer:
    """The values of an expression at each step, and the metrics that it uses."""

    metrics: set[str]
    points: list[list[tuple[Labels, float]]]


def lasting(moment: Moment, seconds: int) -> list[Moment]:
    """Return a history in which one moment lasts for some seconds."""
    return [moment] * (seconds // STEP_SECONDS)


def evaluate(history: Sequence[Moment], expressions: Sequence[str]) -> list[Answer]:
    """Evaluate expressions at each step of a history; raise AssertionError for an invalid one."""
    said = _ask(history, expressions, "")
    answers = []
    for expression, answer in zip(expressions, said["answers"], strict=True):
        assert not answer["error"], f"{expression}: {answer['error']}"
        points = [
            [(point["labels"], float(point["value"])) for point in step]
            for step in answer["points"]
        ]
        answers.append(Answer(set(answer["metrics"]), points))
    return answers


def complaints(rules: str) -> list[str]:
    """Return the errors that Prometheus finds in a file of rules."""
    return list(_ask([], [], rules)["complaints"])


def firing(history: Sequence[Moment], rules: str) -> dict[str, list[Labels]]:
    """Return the alerts that fire at the end of a history, each with its sets of labels."""
    alerts = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    answers = evaluate(history, [alert["expr"] for alert in alerts])
    found = {}
    for alert, answer in zip(alerts, answers, strict=True):
        steps = seconds(alert.get("for", "0s")) // STEP_SECONDS
        # An alert fires for the labels for which it holds at each of the last steps.
        last = answer.points[-steps - 1 :]
        held = [labels for labels, _ in last[-1] if all(_has(labels, step) for step in last)]
        if held and len(last) == steps + 1:
            found[str(alert["alert"])] = held
    return found


def _has(labels: Labels, step: list[tuple[Labels, float]]) -> bool:
    return any(labels == each for each, _ in step)


def seconds(duration: str) -> int:
    """Parse a duration of Prometheus."""
    (number, unit), *more = re.findall(r"(\d+)([smhd])", duration)
    assert not more, f"{duration}: only one unit is supported"
    return int(number) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]


def _ask(history: Sequence[Moment], queries: Sequence[str], rules: str) -> dict[str, Any]:
    question = {
        "step": STEP_SECONDS,
        "steps": len(history),
        "series": _series(history),
        "queries": list(queries),
        "rules": rules,
    }
    done = subprocess.run(
        leashed([str(engine())]),
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _series(history: Sequence[Moment]) -> list[dict[str, Any]]:
    """Return the samples of a history as series, each with the labels of its replica."""
    series: dict[tuple[Any, ...], list[float | None]] = {}
    for step, moment in enumerate(history):
        for replica, scrape in moment.items():
            for (name, labels), value in scrape.samples.items():
                values = series.setdefault((replica, name, labels), [None] * len(history))
                values[step] = value
    return [
        {"labels": {"__name__": name, **_target(replica), **dict(labels)}, "values": values}
        for (replica, name, labels), values in series.items()
    ]


def _target(replica: str) -> Labels:
    """Return the labels that Prometheus adds to the samples of a replica."""
    namespace, _, pod = replica.rpartition("/")
    return {"job": JOB, "namespace": namespace or NAMESPACE, "pod": pod}
