"""Leader election with a Lease: only the replica that holds it works.

A holder loses the lease if it does not renew it within the lease's duration. Other replicas measure
that time from the last change that they saw, so their clocks may differ. A write carries the
resourceVersion, so only one of several candidates acquires the lease.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from handlers.kube.client import ApiClient, ApiError, Conflict

logger = logging.getLogger(__name__)

LENGTH_SECONDS = 15
RENEW_SECONDS = 3
# The holder stops this long before another replica may start.
MARGIN_SECONDS = 3
RETRY_SECONDS = 1
# The time limit of a release; without it, the lease expires soon after.
RELEASE_SECONDS = 3
# Earlier than any time of a monotonic clock, which may start at 0 when the machine boots.
NEVER = float("-inf")


class NotLeaderError(Exception):
    """This replica lost the leader lease, so what it has read may be out of date."""


class Lease:
    """One replica's view of the lease."""

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """`annotations` are added to the lease."""
        self._api = api
        self._annotations = annotations or {}
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{name}"
        self._name = name
        self._identity = identity
        self._seen: tuple[str, str] | None = None
        self._seen_at = NEVER
        self._renewed_at = NEVER

    @property
    def is_held(self) -> bool:
        """Return whether this replica may work now."""
        return self._seconds_left() > 0

    def _seconds_left(self) -> float:
        return self._renewed_at + LENGTH_SECONDS - MARGIN_SECONDS - time.monotonic()

    async def acquire(self) -> None:
        """Wait until this replica holds the lease."""
        waiting_for = None
        while True:
            asked_at = time.monotonic()
            try:
                lease = await self._api.find("GET", self._path)
                holder = self._holder(lease)
                if holder is None or holder == self._identity:
                    # Set before the write, so that release() works if the write is interrupted.
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
                logger.warning("cannot acquire the lease %s; retrying: %s", self._name, error)
            self._renewed_at = NEVER
            await asyncio.sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Renew the lease; return when it is lost, even if the API server does not answer."""
        while (left := self._seconds_left()) > 0:
            try:
                async with asyncio.timeout(left):
                    await asyncio.sleep(RENEW_SECONDS)
                    asked_at = time.monotonic()
                    lease = await self._api.find("GET", self._path)
                    if lease and lease["spec"].get("holderIdentity") != self._identity:
                        holder = lease["spec"].get("holderIdentity")
                        logger.error("lost the lease %s: %s holds it", self._name, holder)
                        self._renewed_at = NEVER
                        return
                    await self._write(lease)
                    self._renewed_at = asked_at
            except ApiError as error:
                logger.warning("cannot renew the lease %s; retrying: %s", self._name, error)
            except TimeoutError:
                break
        logger.error("lost the lease %s: it was not renewed in time", self._name)

    async def release(self) -> None:
        """Release the lease, so that another replica can start at once."""
        if not self.is_held:
            return
        self._renewed_at = NEVER
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                while not await self._clear_holder():
                    pass
            logger.info("released the lease %s", self._name)
        except (ApiError, TimeoutError) as error:
            logger.warning("cannot release the lease %s: %r", self._name, error)

    async def _clear_holder(self) -> bool:
        """Clear the holder if it is this replica; return False if the lease changed meanwhile."""
        try:
            lease = await self._api.find("GET", self._path)
            if lease and lease["spec"].get("holderIdentity") == self._identity:
                await self._write(lease, holder="")
        except Conflict:
            return False
        return True

    def _holder(self, lease: dict[str, Any] | None) -> str | None:
        """Return the holder of a lease that has not expired."""
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
        if lease is None:
            fresh = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            meta = {"name": self._name, "annotations": dict(self._annotations)}
            created = {**fresh, "metadata": meta, "spec": spec}
            await self._api.write("lease", "POST", self._folder, created)
        else:
            meta = lease["metadata"]
            annotations = {**(meta.get("annotations") or {}), **self._annotations}
            changed = {**lease, "metadata": {**meta, "annotations": annotations}, "spec": spec}
            await self._api.write("lease", "PUT", self._path, changed)
