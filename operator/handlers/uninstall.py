"""`python -m handlers.uninstall DEPLOYMENT`: the hook that Helm runs before it removes the chart.

It scales the operator to zero, acquires the leader lease so that no replica works, and removes the
finalizer from each JobGroup: without an operator, an object with it could not be deleted. Groups
keep running, because their workers do; the log names them. The group's annotation stays on each
object: an operator that is installed again continues with the group, and no job runs twice.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import kopf

from handlers.kube import leader
from handlers.kube.client import MERGE, ApiClient, ApiError, Conflict
from handlers.kube.kopf_settings import raise_recursion_limit
from handlers.kube.leader import Lease
from handlers.kube.refs import ref_of
from handlers.kube.releases import CHECK_SECONDS, Releases
from handlers.settings import Settings, SettingsError, read_settings
from jobgroup import Store
from jobgroup.errors import RefusedError
from jobgroup.model.clock import backoff, now_ms
from jobgroup.resource import reasons
from jobgroup.resource.decisions import (
    OTHERS,
    RELEASE_ANNOTATION,
    Resource,
    Step,
    finalizers_without_ours,
    next_step,
    outlives_its_namespace,
)
from jobgroup.resource.events import ResourceEvent, to_kubernetes_event
from jobgroup.resource.kinds import API_VERSION, JOBGROUP
from jobgroup.store.connection import RedisError

logger = logging.getLogger(__name__)

# A replica may take 30 seconds to stop, and its lease 15 to expire.
LEASE_SECONDS = 60
# Redis may be restarting; after this time, objects are released without it.
REDIS_SECONDS = 20
ANSWER_SECONDS = 5
# Objects per list request, and released at the same time.
PAGE = 50

UNDRIVEN = ResourceEvent(
    "Warning",
    reasons.OPERATOR_UNINSTALLED,
    "this group does not advance and is not undone until the operator is installed again",
)
# What is logged about the group of an object that is deleted.
KEPT = (
    "%s (%s) is deleted with its namespace; its group stays in Redis, because an undo failed for"
    " good"
)
NOT_UNDONE = (
    "%s (%s) is deleted, but not undone yet; its undos run when an operator is installed again"
)


class Uninstaller:
    """Releases the JobGroups of one installation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        selector = settings.label_selector
        self._api = ApiClient(kopf.OperatorSettings(), label_selector=selector)
        self._releases = Releases(self._api, settings)
        redis = settings.redis.connect(socket_timeout=ANSWER_SECONDS)
        self._store = Store(redis, settings.redis.prefix)
        self._released = self._running = self._failed = 0
        # Objects of other releases, and those releases.
        self._left = Counter[str]()

    async def run(self, deployment: str) -> bool:
        """Release all objects; return whether all of them are released."""
        settings = self._settings
        lease = Lease(self._api, settings.namespace, settings.lease_name, settings.identity)
        try:
            await self._scale_to_zero(deployment)
            await asyncio.wait_for(lease.acquire(), LEASE_SECONDS)
            await self._release_under(lease)
        except TimeoutError:
            logger.error(
                "cannot acquire the lease %s: its holder still runs. Stop the holder and uninstall"
                " again, or uninstall with --no-hooks to leave all objects to it",
                settings.lease_name,
            )
            return False
        finally:
            await lease.release()
            await self._api.close()
            await self._store.aclose()
        logger.info("released %d JobGroups, %d of them running", self._released, self._running)
        for release, count in sorted(self._left.items()):
            logger.info("left %d JobGroups to the release %s, which claimed them", count, release)
        return not self._failed

    async def _scale_to_zero(self, deployment: str) -> None:
        """Stop the operator, so that no replica can acquire the lease again."""
        folder = f"/apis/apps/v1/namespaces/{self._settings.namespace}/deployments"
        none = {"spec": {"replicas": 0}}
        try:
            await self._api.request("PATCH", f"{folder}/{deployment}/scale", none, MERGE)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _release_under(self, lease: Lease) -> None:
        """Release all objects while this process holds the lease."""
        keeping = asyncio.create_task(lease.keep())
        working = asyncio.create_task(self._release_all())
        await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            raise ApiError(0, "lost the leader lease before all JobGroups were released")
        keeping.cancel()
        await working

    async def _release_all(self) -> None:
        await self._wait_for_redis()
        await self._release_pages()
        if self._releases.is_unconfirmed:
            await asyncio.sleep(CHECK_SECONDS)
            self._left.clear()
            self._failed = 0
            await self._release_pages()

    async def _release_pages(self) -> None:
        for namespace in self._settings.namespaces or ("",):
            try:
                async for page in self._pages(namespace):
                    await asyncio.gather(*(self._release_latest(body) for body in page))
            except ApiError as error:
                self._skip(namespace, error)

    def _skip(self, namespace: str, error: ApiError) -> None:
        """Log that the JobGroups of a namespace cannot be listed; others are still released."""
        if namespace and error.code == 403:
            # The rights are deleted with the namespace: a retry would not help.
            message = "skipped the namespace %s: no permission to list JobGroups: %s"
            logger.warning(message, namespace, error)
        else:
            where = f"the namespace {namespace}" if namespace else "the cluster"
            logger.error("cannot list the JobGroups of %s: %s", where, error)
            self._failed += 1

    async def _wait_for_redis(self) -> None:
        until, failures = time.monotonic() + REDIS_SECONDS, 0
        while True:
            try:
                await self._store.ping()
                return
            except RedisError as error:
                if time.monotonic() > until:
                    location = self._settings.redis.location
                    logger.warning(
                        "Redis at %s does not answer; releasing the JobGroups without it: %s",
                        location,
                        error,
                    )
                    return
                failures += 1
                await asyncio.sleep(min(backoff(failures), 1))

    async def _pages(self, namespace: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the JobGroups of a namespace, or of the cluster if the name is empty."""
        where = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/{API_VERSION}{where}/{JOBGROUP.plural}?limit={PAGE}"
        path += f"&labelSelector={quote(self._settings.label_selector)}"
        token = ""
        while True:
            # If the CRD is not installed, there are no objects.
            found = await self._api.find("GET", path + token) or {"items": []}
            yield found["items"]
            following = found.get("metadata", {}).get("continue")
            if not following:
                break
            token = f"&continue={quote(following)}"

    async def _release_latest(self, body: dict[str, Any]) -> None:
        ref = ref_of(body)
        name = f"{ref.namespace}/{ref.name}"
        current: dict[str, Any] | None = body
        try:
            while current and Resource.read(current).claimed:
                claimant, _ = await self._releases.claimant(current)
                if claimant in OTHERS:
                    self._left[Resource.read(current).claimed_by] += 1
                    return
                with contextlib.suppress(Conflict):
                    await self._release(name, current)
                    return
                current = await self._api.read(ref)
        except ApiError as error:
            if error.code != 404:
                logger.error("cannot release %s: %s", name, error)
                self._failed += 1
        except Exception:
            logger.exception("cannot release %s", name)
            self._failed += 1

    async def _release(self, name: str, body: dict[str, Any]) -> None:
        """Remove the finalizer; first cancel, remove or orphan the group of a deleted object."""
        resource = Resource.read(body)
        if resource.deleting:
            await self._settle_deletion(name, body["metadata"]["namespace"], resource)
        annotations = {**(body["metadata"].get("annotations") or {})}
        annotations.pop(RELEASE_ANNOTATION, None)
        finalizers = finalizers_without_ours(body)
        await self._api.put_metadata(body, {"finalizers": finalizers, "annotations": annotations})
        self._released += 1
        if not resource.deleting and not resource.ended:
            self._running += 1
            logger.warning("%s (%s) is still running: %s", name, resource.uid, UNDRIVEN.message)
            with contextlib.suppress(ApiError):
                await self._api.post_event(
                    body["metadata"]["namespace"], to_kubernetes_event(UNDRIVEN, body, now_ms())
                )

    async def _settle_deletion(self, name: str, namespace: str, resource: Resource) -> None:
        """Do what the operator does for a deleted object whose namespace is deleted, too."""
        try:
            group = await self._store.read(resource.uid)
            step = next_step(resource, group, "", now_ms())
            if step is Step.CANCEL:
                with contextlib.suppress(RefusedError):
                    await self._store.cancel(resource.uid)
            stays = outlives_its_namespace(group) and await self._api.is_terminating(namespace)
            if step is Step.REMOVE and not stays:
                await self._store.remove(resource.uid)
                return
            await self._store.orphan(resource.uid, release=step is not Step.ORPHAN)
            if group:
                logger.warning(KEPT if group.ended else NOT_UNDONE, name, resource.uid)
        except (RedisError, RefusedError) as error:
            message = "%s (%s) is deleted, but its group is still in Redis: %s"
            logger.warning(message, name, resource.uid, error)


def main(arguments: Sequence[str]) -> int:
    """Run the hook; an error is one line."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    # The hook acquires the lease, but is not a replica: these messages would be misleading.
    logging.getLogger(leader.__name__).setLevel(logging.WARNING)
    if len(arguments) != 1:
        logger.critical("usage: python -m handlers.uninstall DEPLOYMENT")
        return 2
    raise_recursion_limit()
    try:
        return 0 if asyncio.run(Uninstaller(read_settings()).run(arguments[0])) else 1
    except SettingsError as refusal:
        logger.critical("%s", refusal)
        return 2
    except ApiError as error:
        logger.critical("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
