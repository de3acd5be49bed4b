"""Rules and expressions over what operators really told, evaluated by Prometheus' own engine.

A history is what each replica told, step by step of a time that only passes in the engine: so a
rule that must hold for an hour need not be watched for one.
"""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.building import Module
from testbed.processes import leashed
from testbed.scrapes import Scrape

MODULE = Module(
    folder=Path(__file__).resolve().parent / "go-promql",
    version="promql-v0.315.0",
    packages={"promql": "./promql"},
    linker_flags="-s -w",
    minutes=2,
)
STEP_SECONDS = 30
# What Prometheus calls the Service that it scrapes, in every namespace that has one.
JOB = "jobgroup-operator"
NAMESPACE = "jobgroups"

# What each replica told at one step; a replica that is down told nothing. One of another operator
# is named with its namespace, as in elsewhere/replica.
Moment = Mapping[str, Scrape]
Labels = dict[str, str]


def engine() -> Path:
    """Return the program that evaluates, built if need be."""
    return MODULE.ensure("promql") / "promql"


@dataclass(frozen=True)
class Answer:
    """What an expression came to, step by step, and the metrics that it asks for."""

    metrics: set[str]
    points: list[list[tuple[Labels, float]]]


def lasting(moment: Moment, seconds: int) -> list[Moment]:
    """Return a history in which everything stays as it is for so long."""
    return [moment] * (seconds // STEP_SECONDS)


def evaluate(history: Sequence[Moment], expressions: Sequence[str]) -> list[Answer]:
    """Evaluate expressions at each step of a history; one that cannot be is an AssertionError."""
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
    """Return what Prometheus has against a file of rules."""
    return list(_ask([], [], rules)["complaints"])


def firing(history: Sequence[Moment], rules: str) -> dict[str, list[Labels]]:
    """Return the alerts that fire at the end of a history, each with the labels it fires for."""
    alerts = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    answers = evaluate(history, [alert["expr"] for alert in alerts])
    found = {}
    for alert, answer in zip(alerts, answers, strict=True):
        steps = seconds(alert.get("for", "0s")) // STEP_SECONDS
        # It fires for whom it has held at every step for so long.
        last = answer.points[-steps - 1 :]
        held = [labels for labels, _ in last[-1] if all(_tells(labels, step) for step in last)]
        if held and len(last) == steps + 1:
            found[str(alert["alert"])] = held
    return found


def _tells(labels: Labels, step: list[tuple[Labels, float]]) -> bool:
    return any(labels == each for each, _ in step)


def seconds(duration: str) -> int:
    """Read a duration as Prometheus spells it."""
    (number, unit), *more = re.findall(r"(\d+)([smhd])", duration)
    assert not more, f"{duration}: one unit is enough"
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
    """Turn what was told, moment by moment, into series, each with the labels of its replica."""
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
    """Return what Prometheus adds to all that it scrapes from a replica."""
    namespace, _, pod = replica.rpartition("/")
    return {"job": JOB, "namespace": namespace or NAMESPACE, "pod": pod}
