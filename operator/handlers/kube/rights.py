"""The rights that the operator needs. Pure; a test compares them with deploy/rbac.yaml.

The right to scale the Deployment of the operator is not among them: only the uninstall hook of the
chart needs it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jobgroup.resource.kinds import API_GROUP, JOBGROUP, KINDS, WORKERPOOL


class Scope(Enum):
    """Where a right is needed."""

    # In the namespaces that the operator watches.
    WATCHED = "watched"
    # In the cluster, if the operator watches all namespaces.
    CLUSTER = "cluster"
    # In the cluster, if the operator watches all namespaces, else in its own.
    RELEASES = "releases"
    # In the operator's own namespace, for any object or for the Lease.
    OWN = "own"
    LEASE = "lease"


class Need(Enum):
    """When the operator cannot work without a right."""

    ALWAYS = "always"
    # While there is a WorkerPool.
    POOLS = "pools"
    # Never: without it, only what the right is for is missing.
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource; `resource` may name a subresource, as in jobgroups/status."""

    verb: str
    group: str
    resource: str
    scope: Scope = Scope.WATCHED
    need: Need = Need.ALWAYS


def _pools(verb: str, group: str, resource: str) -> Right:
    return Right(verb, group, resource, need=Need.POOLS)


RIGHTS = (
    *(Right(verb, API_GROUP, kind.plural) for kind in KINDS for verb in ("get", "list", "watch")),
    Right("update", API_GROUP, f"{JOBGROUP.plural}/status"),
    _pools("update", API_GROUP, f"{WORKERPOOL.plural}/status"),
    *(Right(verb, API_GROUP, JOBGROUP.plural) for verb in ("update", "delete")),
    # Groups advance without Events.
    Right("create", "", "events", need=Need.NEVER),
    Right("get", "", "namespaces"),
    *(_pools("get", "apps", each) for each in ("deployments", "statefulsets")),
    *(_pools("patch", "apps", f"{each}/scale") for each in ("deployments", "statefulsets")),
    _pools("list", "autoscaling", "horizontalpodautoscalers"),
    *(
        Right(verb, "apiextensions.k8s.io", "customresourcedefinitions", Scope.CLUSTER)
        for verb in ("list", "watch")
    ),
    Right("create", "coordination.k8s.io", "leases", Scope.OWN),
    *(Right(verb, "coordination.k8s.io", "leases", Scope.LEASE) for verb in ("get", "update")),
    # Those of other releases; without it, the objects that they claimed are never taken over.
    Right("get", "coordination.k8s.io", "leases", Scope.RELEASES, Need.NEVER),
)


@dataclass(frozen=True, slots=True)
class Review:
    """The question whether the operator has a right; an empty namespace or name means any."""

    right: Right
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        right = self.right
        group = f' in API group "{right.group}"' if right.group else ""
        where = f' in namespace "{self.namespace}"' if self.namespace else ""
        return f"{right.verb} {right.resource}{group}{where}"

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the object that asks the API server."""
        resource, _, part = self.right.resource.partition("/")
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": self.right.verb,
                    "group": self.right.group,
                    "resource": resource,
                    "subresource": part,
                    "namespace": self.namespace,
                    "name": self.name,
                }
            },
        }


def reviews(namespaces: Sequence[str], own: str, lease: str) -> list[Review]:
    """Return all questions; `namespaces` are those that the operator watches, or none for all."""
    return [each for right in RIGHTS for each in _reviews_of(right, namespaces, own, lease)]


def _reviews_of(right: Right, namespaces: Sequence[str], own: str, lease: str) -> Iterator[Review]:
    if right.scope is Scope.OWN:
        yield Review(right, own)
    elif right.scope is Scope.LEASE:
        yield Review(right, own, lease)
    elif not namespaces:
        yield Review(right)
    elif right.scope is Scope.RELEASES:
        yield Review(right, own)
    elif right.scope is Scope.WATCHED:
        for namespace in namespaces:
            # For the API server, a namespace is in itself.
            yield Review(right, namespace, namespace if right.resource == "namespaces" else "")
        if right.resource == "namespaces" and "kube-system" not in namespaces:
            yield Review(right, "kube-system", "kube-system")
