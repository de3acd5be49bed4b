"""Who of several replicas works: the one that holds a Lease.

A holder that has not renewed for the lease's length has lost it. How long ago it did is measured
from when we saw it change, so clocks need not agree. A write carries the resourceVersion, so of two
that reach out for the same lease only one gets it.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from handlers.cluster import ApiError, Cluster, Conflict

logger = logging.getLogger(__name__)

LENGTH_SECONDS = 15
RENEW_SECONDS = 3
# A holder stops this long before anybody else may begin.
MARGIN_SECONDS = 3
LOOK_SECONDS = 1
# So long may giving the lease back take; it runs out by itself soon after.
RELEASE_SECONDS = 3
# Before any time there is: a clock may begin at 0 when its machine does.
NEVER = float("-inf")


class Lease:
    """One replica's view of the lease."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, identity: str) -> None:
        self._cluster = cluster
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{name}"
        self._name = name
        self._identity = identity
        self._seen: tuple[str, str] | None = None
        self._seen_at = NEVER
        self._renewed_at = NEVER

    @property
    def is_held(self) -> bool:
        """Say whether this replica may work now."""
        return self._seconds_left() > 0

    def _seconds_left(self) -> float:
        return self._renewed_at + LENGTH_SECONDS - MARGIN_SECONDS - time.monotonic()

    async def acquire(self) -> None:
        """Wait until this replica is the one."""
        waiting_for = None
        while True:
            asked_at = time.monotonic()
            try:
                lease = await self._cluster.find("GET", self._path)
                holder = self._holder(lease)
                if holder is None or holder == self._identity:
                    # Before it is known to be ours: cut off in the middle, it is given back.
                    self._renewed_at = asked_at
                    await self._write(lease)
                    logger.info("this replica leads")
                    return
                if holder != waiting_for:
                    waiting_for = holder
                    logger.info("%s leads; this replica waits", holder)
            except Conflict:
                pass
            except ApiError as error:
                logger.warning("the lease cannot be taken yet: %s", error)
            self._renewed_at = NEVER
            await asyncio.sleep(LOOK_SECONDS)

    async def keep(self) -> None:
        """Renew the lease; return when it is lost, however long the API server takes to answer."""
        while (left := self._seconds_left()) > 0:
            try:
                async with asyncio.timeout(left):
                    await asyncio.sleep(RENEW_SECONDS)
                    asked_at = time.monotonic()
                    lease = await self._cluster.find("GET", self._path)
                    if lease and lease["spec"].get("holderIdentity") != self._identity:
                        logger.error("%s took the lease", lease["spec"].get("holderIdentity"))
                        self._renewed_at = NEVER
                        return
                    await self._write(lease)
                    self._renewed_at = asked_at
            except ApiError as error:
                logger.warning("the lease cannot be renewed: %s", error)
            except TimeoutError:
                break
        logger.error("the lease could not be renewed in time")

    async def release(self) -> None:
        """Let another replica begin at once."""
        if not self.is_held:
            return
        self._renewed_at = NEVER
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                while not await self._let_go():
                    pass
        except (ApiError, TimeoutError) as error:
            logger.warning("the lease cannot be released: %r", error)

    async def _let_go(self) -> bool:
        """Free the lease if it is ours; say no if a write that was cut off came in between."""
        try:
            lease = await self._cluster.find("GET", self._path)
            if lease and lease["spec"].get("holderIdentity") == self._identity:
                await self._write(lease, holder="")
        except Conflict:
            return False
        return True

    def _holder(self, lease: dict[str, Any] | None) -> str | None:
        """Return who holds a lease that has not run out."""
        spec = lease["spec"] if lease else {}
        holder = spec.get("holderIdentity")
        if not lease or not holder:
            return None
        seen = (holder, lease["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
        length = spec.get("leaseDurationSeconds") or LENGTH_SECONDS
        return None if time.monotonic() > self._seen_at + length else str(holder)

    async def _write(self, lease: dict[str, Any] | None, holder: str | None = None) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        before = lease["spec"] if lease else {}
        spec = {
            **before,
            "holderIdentity": self._identity if holder is None else holder,
            "leaseDurationSeconds": LENGTH_SECONDS,
            "renewTime": now,
        }
        if before.get("holderIdentity") != spec["holderIdentity"]:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = before.get("leaseTransitions", -1) + 1
        self._cluster.writes["lease"] += 1
        if lease is None:
            fresh = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await self._cluster.request(
                "POST", self._folder, {**fresh, "metadata": {"name": self._name}, "spec": spec}
            )
        else:
            await self._cluster.request("PUT", self._path, {**lease, "spec": spec})
