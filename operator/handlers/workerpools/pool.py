"""One WorkerPool, and what is kept about it between two reconciles."""

import time
from dataclasses import dataclass, field
from typing import Any

from handlers.kube.refs import Ref
from handlers.workerpools.targets import Target
from jobgroup.model.backlog import Backlog
from jobgroup.resource.replicas import Bounds, Decision, desired_replicas
from jobgroup.resource.workerpool_spec import bounds_of
from jobgroup.resource.workerpool_status import Scaling
from jobgroup.resource.workload import Workload

Body = dict[str, Any]


@dataclass(slots=True)
class Pool:
    """One pool, and the state of it that is kept between two reconciles."""

    ref: Ref
    body: Body
    # The maximum number of replicas that the operator allows.
    ceiling: int | None = None
    is_new: bool = True
    # The newest event of the queue when its jobs were last counted; empty if they must be counted.
    event: str = ""
    # The jobs when they were last counted; None if they could not be.
    backlog: Backlog | None = None
    calm_since: float | None = None
    written_at: float = 0.0
    checked_at: float = field(default_factory=time.monotonic)
    workload: Workload | None = None
    read_at: float = 0.0
    scaled_at: float = 0.0
    # A scaling that was requested, and whose response has not arrived.
    requested: Scaling | None = None
    # A scaling that was carried out, but is not in the status yet.
    unreported: Scaling | None = None

    @property
    def queue(self) -> str:
        return str(self.body["spec"]["queueName"])

    @property
    def bounds(self) -> Bounds:
        return bounds_of(self.body["spec"], self.ceiling)

    @property
    def horizon(self) -> tuple[str, int]:
        """The queue, and the milliseconds within which delayed jobs count."""
        return self.queue, self.bounds.horizon_seconds * 1000

    @property
    def target(self) -> Target:
        """The workload; only one pool may scale it."""
        target = self.body["spec"]["scaleTargetRef"]
        return self.ref.namespace, target["apiVersion"], target["kind"], target["name"]

    @property
    def age(self) -> tuple[str, str]:
        """A sort key: the older of two pools is less."""
        return self.body["metadata"]["creationTimestamp"], self.ref.uid

    @property
    def generation(self) -> int:
        return int(self.body["metadata"]["generation"])

    @property
    def ready_condition(self) -> tuple[str, str]:
        """The reason and the message of the Ready condition; empty if there is none."""
        for each in (self.body.get("status") or {}).get("conditions") or ():
            if each["type"] == "Ready":
                return each["reason"], each["message"]
        return "", ""

    def update(self, body: Body) -> bool:
        """Store an object, unless it is older than the stored one; return whether its spec changed.

        Two objects of the same generation may arrive in any order: they differ only in the status.
        """
        newer = int(body["metadata"]["generation"]) - self.generation
        if newer >= 0:
            self.body = body
        return newer > 0

    def decide(self, backlog: Backlog, current: int) -> Decision:
        return desired_replicas(self.bounds, backlog, current, self.calm_since, time.monotonic())
