"""The CRD as a value: that the file is what the models say, and what holds for every field."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobgroup import crd, resource, spec
from jobgroup.generate import files
from jobgroup.options import JobOptions, RetryOptions
from jobgroup.pool_crd import workerpool_crd
from jobgroup.structural import OPAQUE

ROOT = Path(__file__).resolve().parents[2]
[VERSION] = crd.jobgroup_crd()["spec"]["versions"]
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


def test_the_files_are_what_the_models_say() -> None:
    stand = {path.name: path.read_text() for path in (ROOT / "deploy/crds").iterdir()}
    assert stand == dict(files()), "run `make generate`"


def test_make_generate_writes_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobgroup.generate", str(tmp_path)]
    subprocess.run(command, env={"PYTHONPATH": str(ROOT / "operator")}, check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict(files())


def test_the_text_is_the_same_each_time_and_has_no_references() -> None:
    assert dict(files()) == dict(files())
    assert all("&id" not in text for _, text in files())


@pytest.mark.parametrize(("path", "field"), EVERY, ids=[path for path, _ in EVERY])
def test_every_field_is_described_and_bounded(path: str, field: dict[str, Any]) -> None:
    said = field["description"]
    assert said[0].isupper() or said.startswith("fixed")
    assert said.endswith(".")
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
    assert set(SPEC["properties"]) == set(resource.JobGroupSpec.model_fields)
    assert set(OPTIONS["properties"]) == set(crd.BULLMQ_OPTIONS)
    assert set(UNDO["properties"]["opts"]["properties"]) == set(crd.BULLMQ_OPTIONS)
    assert set(spec.Group.model_fields) < set(SPEC["properties"])


def test_the_options_of_the_models_are_options_of_bullmq() -> None:
    assert RetryOptions.model_fields.keys() < JobOptions.model_fields.keys()
    assert JobOptions.model_fields.keys() < crd.BULLMQ_OPTIONS.keys()


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


def test_what_nobody_shares_is_atomic() -> None:
    atomic = {path for path, field in FIELDS if field.get("x-kubernetes-map-type") == "atomic"}
    assert atomic == {
        "spec.jobs[]",
        "spec.jobs[].opts",
        "spec.compensation",
        "spec.compensation{}.opts",
        "status",
    }
    keyed = {
        path: field["x-kubernetes-list-map-keys"]
        for path, field in FIELDS
        if field.get("x-kubernetes-list-type") == "map"
    }
    assert keyed == {"spec.jobs": ["name"]}


def test_a_category_is_no_name_of_a_resource() -> None:
    # kubectl takes the word for the category then, and lists whatever else is in it.
    for made in (crd.jobgroup_crd(), workerpool_crd()):
        names = made["spec"]["names"]
        own = {names["plural"], names["singular"], *names["shortNames"]}
        assert not set(names["categories"]) & own
