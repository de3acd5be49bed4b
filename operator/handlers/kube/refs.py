"""References to the objects that the operator reconciles: the keys of its work queues."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobgroup.resource.kinds import API_VERSION, JOBGROUP, KINDS

# An object with more jobs than this is large, and one whose jobs and undos have more JSON.
LARGE_JOBS = 100
LARGE_BYTES = 100_000
# What a value costs beside the characters of its text: planning takes time for each value.
_VALUE_BYTES = 16
_KINDS = {kind.plural: kind for kind in KINDS}
_PLURALS = {kind.name: kind.plural for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to one object. An object that is created again has the same name, another uid."""

    namespace: str
    name: str
    uid: str

    plural: str = JOBGROUP.plural
    # Whether a write of the object costs the API server a hundred times as much as usual.
    is_large: bool = field(default=False, compare=False)

    @property
    def path(self) -> str:
        return _path(self.plural, self.namespace, self.name)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def kind(self) -> str:
        return _KINDS[self.plural].name

    @property
    def context(self) -> dict[str, Any]:
        """The fields of a log record about the object; kopf prefixes the line with k8s_ref."""
        ref = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        group = {"group": self.uid} if self.plural == JOBGROUP.plural else {}
        return {"namespace": self.namespace, self.kind.lower(): self.name, **group, "k8s_ref": ref}


def ref_of(body: Mapping[str, Any]) -> Ref:
    """Return the reference of an object of one of our kinds."""
    meta, plural = body["metadata"], _PLURALS[body["kind"]]
    return Ref(meta["namespace"], meta["name"], meta["uid"], plural, is_large(body))


def path_of(body: Mapping[str, Any]) -> str:
    """Return the path of an object of one of our kinds, without looking at its size."""
    meta = body["metadata"]
    return _path(_PLURALS[body["kind"]], meta["namespace"], meta["name"])


def _path(plural: str, namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}/{name}"


def is_large(body: Mapping[str, Any]) -> bool:
    """Return whether an object has many jobs, or much data."""
    spec = body.get("spec") or {}
    jobs = spec.get("jobs") or ()
    if len(jobs) > LARGE_JOBS:
        return True
    # Not a recursion: nobody has checked how deep the data is. It ends at the limit.
    left, size = [jobs, spec.get("compensation")], 0
    while left and size <= LARGE_BYTES:
        value = left.pop()
        size += _VALUE_BYTES
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
    return size > LARGE_BYTES
