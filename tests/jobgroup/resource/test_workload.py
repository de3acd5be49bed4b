"""Workloads of any kind: their replicas, whatever they are, and whether they may be scaled."""

from typing import Any

import pytest

from jobgroup.resource.workload import (
    MAX_INT32,
    SCALABLE_ANNOTATION,
    Workload,
    read_workload,
    scaling_refusal,
)

META = {"resourceVersion": "7"}


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, 0),
        (None, 0),
        ({"readyReplicas": 2}, 2),
        ({"readyReplicas": 20_000}, 20_000),
        ({"readyReplicas": "two"}, None),
        ({"readyReplicas": None}, None),
        ({"readyReplicas": True}, None),
        ({"readyReplicas": 2.5}, None),
        ({"readyReplicas": -1}, None),
        ({"readyReplicas": MAX_INT32 + 1}, None),
        ("fine", 0),
    ],
)
def test_ready_replicas_are_a_number_or_unknown(status: Any, ready: int | None) -> None:
    found = {"metadata": META, "spec": {"replicas": 3}, "status": status}
    assert read_workload("/path", found) == Workload("/path", "7", 3, ready)


@pytest.mark.parametrize("replicas", [0, 20_000, MAX_INT32])
def test_a_workload_may_have_any_number_of_replicas(replicas: int) -> None:
    found = read_workload("/path", {"metadata": META, "spec": {"replicas": replicas}})
    assert found == Workload("/path", "7", replicas, 0)


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        "three",
        {"replicas": "3"},
        {"replicas": 3.0},
        {"replicas": True},
        {"replicas": -1},
        {"replicas": MAX_INT32 + 1},
    ],
)
def test_a_workload_without_a_number_of_replicas_cannot_be_scaled(spec: Any) -> None:
    assert read_workload("/path", {"metadata": META, "spec": spec}) is None


REQUIRED = f'the operator requires the annotation {SCALABLE_ANNOTATION}: "true" to scale it'


@pytest.mark.parametrize(
    ("value", "opt_in", "refusal"),
    [
        (None, False, ""),
        (None, True, REQUIRED),
        ("true", False, ""),
        ("true", True, ""),
        ("false", False, f'its annotation {SCALABLE_ANNOTATION} is "false", not "true"'),
        ("false", True, f'its annotation {SCALABLE_ANNOTATION} is "false", not "true"'),
        # A misspelled refusal is a refusal.
        ("False", False, f'its annotation {SCALABLE_ANNOTATION} is "False", not "true"'),
        ("", False, f'its annotation {SCALABLE_ANNOTATION} is "", not "true"'),
    ],
)
def test_a_workload_refuses_or_must_opt_in(value: str | None, opt_in: bool, refusal: str) -> None:
    annotations = {"other": "false"} | ({} if value is None else {SCALABLE_ANNOTATION: value})
    assert scaling_refusal(annotations, opt_in) == refusal
