"""The schemas of both CRDs: descriptions, bounds, defaults and merge keys of every field."""

from collections.abc import Iterator
from typing import Any

import pytest

from jobgroup.crd import jobgroup
from jobgroup.crd.structural import OPAQUE
from jobgroup.crd.workerpool import workerpool_crd
from jobgroup.definition import spec
from jobgroup.definition.options import JobOptions, RetryOptions
from jobgroup.resource import jobgroup_spec

[VERSION] = jobgroup.jobgroup_crd()["spec"]["versions"]
[POOL_VERSION] = workerpool_crd()["spec"]["versions"]
POOL = POOL_VERSION["schema"]["openAPIV3Schema"]["properties"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]
OPTIONS = SPEC["properties"]["jobs"]["items"]["properties"]["opts"]
UNDO = SPEC["properties"]["compensation"]["additionalProperties"]


def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from walk(node["additionalProperties"], f"{path}{{}}")


FIELDS = [*walk(SPEC, "spec"), *walk(STATUS, "status")]
POOL_FIELDS = [*walk(POOL["spec"], "pool.spec"), *walk(POOL["status"], "pool.status")]
EVERY = [*FIELDS, *POOL_FIELDS]


@pytest.mark.parametrize(("path", "field"), EVERY, ids=[path for path, _ in EVERY])
def test_every_field_is_described_and_bounded(path: str, field: dict[str, Any]) -> None:
    description = field["description"]
    assert description[0].isupper()
    assert description.endswith(".")
    match field.get("type"):
        case "object":
            assert "properties" in field or "maxProperties" in field
            assert "additionalProperties" not in field or "properties" not in field
        case "array":
            assert "maxItems" in field
        case "string":
            assert "maxLength" in field or "enum" in field
        case "integer":
            assert "minimum" in field
            assert "maximum" in field
        case "boolean":
            pass
        case kind:
            assert kind is None
            assert field[OPAQUE] is True


def test_every_field_of_the_models_is_there() -> None:
    assert set(SPEC["properties"]) == set(jobgroup_spec.JobGroupSpec.model_fields)
    assert set(OPTIONS["properties"]) == set(jobgroup.BULLMQ_OPTIONS)
    assert set(UNDO["properties"]["opts"]["properties"]) == set(jobgroup.BULLMQ_OPTIONS)
    assert set(spec.Group.model_fields) - {"explicit_name"} < set(SPEC["properties"])


def test_the_options_of_the_models_are_options_of_bullmq() -> None:
    assert RetryOptions.model_fields.keys() < JobOptions.model_fields.keys()
    assert JobOptions.model_fields.keys() < jobgroup.BULLMQ_OPTIONS.keys()


def test_a_field_of_several_kinds_keeps_the_bounds_of_each() -> None:
    backoff = OPTIONS["properties"]["backoff"]
    assert (backoff["minimum"], backoff["maximum"]) == (1, 315_360_000_000)
    assert backoff["required"] == ["type", "delay"]
    assert backoff["properties"]["delay"]["minimum"] == 1
    assert "type" not in backoff


def test_defaults() -> None:
    found = {path: field["default"] for path, field in FIELDS if "default" in field}
    assert found == {
        "spec.jobs": [],
        "spec.compensation": {},
        "spec.compensation{}.when": "Completed",
        "spec.onEnd[].when": "Always",
        "spec.deletionPolicy": "Compensate",
        "spec.cancel": False,
        "spec.suspend": False,
        "status": {},
        "status.observedGeneration": -1,
    }


def test_data_is_any_json() -> None:
    for field in (SPEC["properties"]["jobs"]["items"], UNDO):
        assert field["properties"]["data"].items() >= {OPAQUE: True, "nullable": True}.items()
        assert "type" not in field["properties"]["data"]


def test_fields_with_one_writer_are_atomic() -> None:
    atomic = {path for path, field in FIELDS if field.get("x-kubernetes-map-type") == "atomic"}
    assert atomic == {
        "spec.jobs[]",
        "spec.jobs[].opts",
        "spec.compensation",
        "spec.compensation{}.opts",
        "spec.complete{}",
        "spec.resolved{}",
        "spec.onEnd[].opts",
        "status",
    }
    keyed = {
        path: field["x-kubernetes-list-map-keys"]
        for path, field in FIELDS
        if field.get("x-kubernetes-list-type") == "map"
    }
    assert keyed == {"spec.jobs": ["name"]}


def test_a_category_is_not_the_name_of_a_resource() -> None:
    # kubectl would read the word as the category and list all other resources in it.
    for made in (jobgroup.jobgroup_crd(), workerpool_crd()):
        names = made["spec"]["names"]
        own = {names["plural"], names["singular"], *names["shortNames"]}
        assert not set(names["categories"]) & own
