"""The workloads that pools scale: found through discovery, never with another scaler on them."""

import time
from collections.abc import Mapping
from typing import Any

from handlers.cluster import ApiError, Cluster, Conflict
from jobgroup.conditions import Trouble
from jobgroup.pool_status import TARGET_MISSING, TARGET_REFUSED, Workload

# The autoscalers of a namespace are listed at most this often, however many pools it has.
AUTOSCALERS_SECONDS = 5.0

Target = tuple[str, str, str, str]


class Targets:
    """Finds workloads, and what keeps a pool's hands off them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._plurals: dict[tuple[str, str], str] = {}
        self._autoscalers: dict[str, tuple[float, dict[tuple[str, str], str]]] = {}

    async def find(self, target: Target) -> tuple[Workload | None, Trouble | None]:
        """Return a workload as it is now; with trouble it is not to be touched."""
        namespace, _, kind, name = target
        try:
            path = await self._path(target)
            found = await self._cluster.find("GET", path) if path else None
            scaler = await self._autoscaler(namespace, kind, name) if found else None
        except ApiError as refusal:
            return None, refused(refusal)
        if not path or not found:
            return None, Trouble(TARGET_MISSING, f"there is no {kind} {name} in {namespace}")
        workload = _workload(path, found)
        if workload is None:
            said = f"{kind} {name} has no .spec.replicas: it cannot be scaled by a pool"
            return None, Trouble(TARGET_REFUSED, said)
        if scaler:
            said = f"the HorizontalPodAutoscaler {scaler} scales {kind} {name}: it is left alone"
            return workload, Trouble("HorizontalPodAutoscaler", said)
        return workload, None

    async def _path(self, target: Target) -> str | None:
        """Return where a workload is, if the API has its kind."""
        namespace, version, kind, name = target
        plural = await self._plural(version, kind)
        folder = "/apis" if "/" in version else "/api"
        return plural and f"{folder}/{version}/namespaces/{namespace}/{plural}/{name}"

    async def _plural(self, version: str, kind: str) -> str | None:
        if (version, kind) not in self._plurals:
            found = await self._cluster.plural(version, kind)
            if found is None:
                return None
            self._plurals[version, kind] = found
        return self._plurals[version, kind]

    async def _autoscaler(self, namespace: str, kind: str, name: str) -> str | None:
        """Name the autoscaler of a workload; KEDA makes one too."""
        read_at, known = self._autoscalers.get(namespace, (float("-inf"), {}))
        if time.monotonic() >= read_at + AUTOSCALERS_SECONDS:
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
            found = await self._cluster.find("GET", path)
            known = {}
            for each in (found or {}).get("items", ()):
                of = each["spec"]["scaleTargetRef"]
                known[of["kind"], of["name"]] = str(each["metadata"]["name"])
            self._autoscalers[namespace] = time.monotonic(), known
        return known.get((kind, name))


def refused(error: ApiError) -> Trouble:
    """Say what a person can help with; raise what time will."""
    if isinstance(error, Conflict) or error.code not in (400, 403, 404, 405, 422):
        raise error
    return Trouble(TARGET_REFUSED, f"the workload cannot be scaled: {error}")


def _workload(path: str, found: Mapping[str, Any]) -> Workload | None:
    """Take what matters from a workload; its scale subresource would not tell what is ready."""
    replicas = (found.get("spec") or {}).get("replicas")
    if not isinstance(replicas, int):
        return None
    ready = (found.get("status") or {}).get("readyReplicas", 0)
    return Workload(path, found["metadata"]["resourceVersion"], replicas, ready)
