"""The models of the JobGroup resource -> its CRD; `make generate` writes it to deploy/crds/.

Run as a program, with the folder to write to. Everything but that is pure.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from jobgroup import rules
from jobgroup.options import MAX_COUNT, JobOptions, RetryOptions
from jobgroup.resource import API_GROUP, KIND, VERSION, JobGroupSpec
from jobgroup.resource_status import JobGroupStatus
from jobgroup.structural import OPAQUE, Schema, structural

PLURAL = "jobgroups"
FILE = f"{PLURAL}.yaml"
HEADER = "# Generated from operator/jobgroup/resource.py by `make generate`; edit that instead.\n"

RULES = "x-kubernetes-validations"

_SWITCH = {"type": "boolean"}
_NUMBER = {"type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_COUNT}
_TEXT = {"type": "string", "maxLength": 1024}
_MAPPING = {"type": "object", "maxProperties": 100, OPAQUE: True}

# Options that BullMQ has. Those that a model of ours has not are declared all the same, to be
# refused by name: the API server drops an undeclared field, and not every client is told so.
BULLMQ_OPTIONS: dict[str, Schema] = {
    "parent": _MAPPING,
    "group": _MAPPING,
    "jobId": _TEXT,
    "deduplication": _MAPPING,
    "debounce": _MAPPING,
    "repeat": _MAPPING,
    "repeatJobKey": _TEXT,
    "failParentOnFailure": _SWITCH,
    "continueParentOnFailure": _SWITCH,
    "ignoreDependencyOnFailure": _SWITCH,
    "removeDependencyOnFailure": _SWITCH,
    "timestamp": _NUMBER,
    "prevMillis": _NUMBER,
    "sizeLimit": _NUMBER,
    "telemetry": _MAPPING,
    "attempts": _NUMBER,
    "backoff": _NUMBER,
    "delay": _NUMBER,
    "priority": _NUMBER,
    "lifo": _SWITCH,
    "removeOnComplete": _SWITCH,
    "removeOnFail": _SWITCH,
    "keepLogs": _NUMBER,
    "stackTraceLimit": _NUMBER,
}

_COLUMNS = (
    ("State", ".status.state", "string", 0),
    ("Progress", ".status.progress", "string", 0),
    ("Undone", ".status.undone", "string", 0),
    ("Failed Job", ".status.failure.jobName", "string", 0),
    ("Reason", ".status.failure.reason", "string", 1),
    ("Group ID", ".status.groupId", "string", 1),
    ("Finished", ".status.finishedAt", "date", 1),
    ("Age", ".metadata.creationTimestamp", "date", 0),
)


def crd() -> dict[str, Any]:
    """Return the definition of the resource."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root()},
        "subresources": {"status": {}},
        # So that whoever looks for running groups need not read the ended ones.
        "selectableFields": [{"jsonPath": ".status.state"}],
        "additionalPrinterColumns": [
            {"name": name, "jsonPath": path, "type": kind, "priority": priority}
            for name, path, kind, priority in _COLUMNS
        ],
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["jg"],
        # Not `all`: sagas are data, and there may be thousands of them beside a few Deployments.
        "categories": ["sagas"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def text() -> str:
    """Return the file, the same each time."""
    return HEADER + yaml.dump(crd(), Dumper=_Dumper, sort_keys=False, width=100)


def _root() -> Schema:
    return {
        "description": "A JobGroup is a saga: a set of independent BullMQ jobs that all succeed, or"
        " have their effects undone.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"{API_GROUP}/{VERSION}", "type": "string"},
            "kind": {"description": KIND, "type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
        RULES: rules.ROOT,
    }


def _spec() -> Schema:
    spec = structural(JobGroupSpec)
    fields = spec["properties"]
    jobs, compensation = fields["jobs"], fields["compensation"]
    job, undo = jobs["items"], compensation["additionalProperties"]

    # A field that is missing is told the same as an empty one, and removing it is a change.
    jobs["default"], compensation["default"] = [], {}
    jobs |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    # Nobody shares a job, and who owns each field of 2,000 of them would fill the object.
    for mapping in (job, job["properties"]["opts"], compensation, undo["properties"]["opts"]):
        mapping["x-kubernetes-map-type"] = "atomic"
    job["properties"]["queueName"]["maxLength"] = 63

    no_jobs = _refuse(job["properties"]["opts"], JobOptions, "a job in a group")
    no_undos = _refuse(undo["properties"]["opts"], RetryOptions, "an undo")
    spec[RULES] = [
        *rules.SPEC,
        # These two have a sentence of their own.
        rules.refused_job_options([name for name in no_jobs if name not in ("parent", "group")]),
        rules.refused_undo_options(no_undos),
    ]
    fields["cancel"][RULES] = rules.CANCEL
    return spec


def _status() -> Schema:
    status = structural(JobGroupStatus)
    # Makes the default of observedGeneration show before the operator has written anything.
    status["default"] = {}
    for name, kind in (("jobs", "atomic"), ("events", "atomic"), ("conditions", "map")):
        status["properties"][name]["x-kubernetes-list-type"] = kind
    status["properties"]["conditions"]["x-kubernetes-list-map-keys"] = ["type"]
    return status


def _refuse(opts: Schema, model: type[RetryOptions], whose: str) -> list[str]:
    """Declare the options that a model has not, and return their names."""
    refused = [name for name in BULLMQ_OPTIONS if name not in model.model_fields]
    for name in refused:
        said = f"Refused: it is not an option of {whose}."
        opts["properties"][name] = {"description": said, **BULLMQ_OPTIONS[name]}
    return refused


class _Dumper(yaml.SafeDumper):
    """YAML in full: no references to what stands elsewhere."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    Path(sys.argv[1], FILE).write_text(text())
