"""The workloads that pools scale, found through discovery, and what prevents their scaling."""

import time

from handlers.kube.client import ApiClient, ApiError, Conflict
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem
from jobgroup.resource.workload import Workload, read_workload, scaling_refusal

# The autoscalers of a namespace are listed at most this often, however many pools it has.
AUTOSCALERS_SECONDS = 5.0

Target = tuple[str, str, str, str]


class Targets:
    """Finds workloads, and the reasons not to scale them."""

    def __init__(self, api: ApiClient, opt_in: bool = False) -> None:
        self._api = api
        # Whether only workloads that opted in may be scaled.
        self._opt_in = opt_in
        self._plurals: dict[tuple[str, str], str] = {}
        self._autoscalers: dict[str, tuple[float, dict[tuple[str, str], str]]] = {}

    async def find(self, target: Target) -> tuple[Workload | None, Problem | None]:
        """Read a workload; return it, and a problem if it must not be scaled."""
        namespace, _, kind, name = target
        try:
            path = await self._path(target)
            found = await self._api.find("GET", path) if path else None
            if not path or not found:
                message = (
                    f"there is no {kind} {name} in {namespace}: create it, or correct the pool"
                )
                return None, Problem(reasons.TARGET_MISSING, message)
            if refusal := scaling_refusal(found["metadata"].get("annotations") or {}, self._opt_in):
                message = f"{kind} {name} is not scaled: {refusal}"
                return None, Problem(reasons.NOT_SCALABLE, message)
            workload = read_workload(path, found)
            if workload is None:
                message = f"{kind} {name} has no .spec.replicas: it cannot be scaled by a pool"
                return None, Problem(reasons.TARGET_REFUSED, message)
            scaler = await self._autoscaler(namespace, kind, name)
        except ApiError as error:
            return None, refused(error)
        if scaler:
            by = f"the HorizontalPodAutoscaler {scaler}"
            message = f"{by} scales {kind} {name}; the pool does not: delete one of the two"
            return workload, Problem(reasons.HORIZONTAL_POD_AUTOSCALER, message)
        return workload, None

    async def _path(self, target: Target) -> str | None:
        """Return the path of a workload, if the API server has its kind."""
        namespace, version, kind, name = target
        plural = await self._plural(version, kind)
        folder = "/apis" if "/" in version else "/api"
        return plural and f"{folder}/{version}/namespaces/{namespace}/{plural}/{name}"

    async def _plural(self, version: str, kind: str) -> str | None:
        if (version, kind) not in self._plurals:
            found = await self._api.plural(version, kind)
            if found is None:
                return None
            self._plurals[version, kind] = found
        return self._plurals[version, kind]

    async def _autoscaler(self, namespace: str, kind: str, name: str) -> str | None:
        """Return the name of the autoscaler of a workload; KEDA creates one, too."""
        read_at, known = self._autoscalers.get(namespace, (float("-inf"), {}))
        if time.monotonic() >= read_at + AUTOSCALERS_SECONDS:
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
            found = await self._api.find("GET", path)
            known = {}
            for each in (found or {}).get("items", ()):
                of = each["spec"]["scaleTargetRef"]
                known[of["kind"], of["name"]] = str(each["metadata"]["name"])
            self._autoscalers[namespace] = time.monotonic(), known
        return known.get((kind, name))


def refused(error: ApiError) -> Problem:
    """Return the problem of a request that a person must fix; raise any other error."""
    if isinstance(error, Conflict) or error.code not in (400, 403, 404, 405, 422):
        raise error
    return Problem(reasons.TARGET_REFUSED, f"the workload cannot be scaled: {error}")
