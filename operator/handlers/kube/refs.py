"""References to the objects that the operator reconciles: the keys of its work queues."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobgroup.resource.kinds import API_VERSION, JOBGROUP, KINDS

# An object with more jobs than this is large.
LARGE_JOBS = 100
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
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{self.plural}/{self.name}"

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
    meta, jobs = body["metadata"], (body.get("spec") or {}).get("jobs") or ()
    plural = _PLURALS[body["kind"]]
    return Ref(meta["namespace"], meta["name"], meta["uid"], plural, len(jobs) > LARGE_JOBS)
