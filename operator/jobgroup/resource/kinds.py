"""The kinds of resource that this project defines: one entry each.

CRDs, watches, probes and the reference in docs/ are made from this table; tests compare the RBAC
rules in deploy/ with it. To add a kind, add an entry here, a spec and a status in this package, a
CRD in crd/, and a package in handlers/.
"""

from dataclasses import dataclass

API_GROUP = "jobgroups.dev"
VERSION = "v1alpha1"
API_VERSION = f"{API_GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of resource. The operator does not start without the CRD of a required one."""

    name: str
    plural: str
    short_name: str
    is_required: bool


JOBGROUP = Kind("JobGroup", "jobgroups", "jg", is_required=True)
WORKERPOOL = Kind("WorkerPool", "workerpools", "wp", is_required=False)

KINDS = (JOBGROUP, WORKERPOOL)
