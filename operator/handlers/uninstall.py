"""`python -m handlers.uninstall DEPLOYMENT`: what the chart runs before it is uninstalled.

Ends the replicas, takes their Lease so that nobody works any more, and takes the finalizer off each
JobGroup: without an operator nothing could be deleted that has it. What runs goes on running, for
the workers are still there, and is named. The note on each object stays, so an operator that is
installed again knows whose group it is and goes on with it; nothing is run twice.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import kopf

from handlers.cluster import MERGE, ApiError, Cluster, Conflict, ref_of, take_deep_data
from handlers.lease import Lease
from jobgroup import Store, connect
from jobgroup.connection import RedisError, backoff
from jobgroup.decisions import Resource, Step, next_step, released
from jobgroup.errors import RefusedError
from jobgroup.news import News, event_of
from jobgroup.resource import API_VERSION, PLURAL
from jobgroup.settings import Settings, SettingsError, read_settings
from jobgroup.store import now_ms

logger = logging.getLogger(__name__)

# A replica has half a minute to stop, and its lease a quarter to run out.
LEASE_SECONDS = 60
# Redis may be restarting; if it does not come, nothing is kept from going for its sake.
REDIS_SECONDS = 20
ANSWER_SECONDS = 5
# So many objects are in hand at a time.
PAGE = 50

UNDRIVEN = News(
    "Warning",
    "OperatorUninstalled",
    "nobody drives or undoes this group until the operator is installed again",
)


class Uninstaller:
    """Lets go of the JobGroups of one installation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cluster = Cluster(kopf.OperatorSettings())
        redis = connect(settings.redis_url, socket_timeout=ANSWER_SECONDS)
        self._store = Store(redis, settings.prefix)
        self._released = self._running = self._failed = 0

    async def run(self, deployment: str) -> bool:
        """Let go of everything; say whether all of it is free."""
        place = (self._settings.namespace, self._settings.lease_name, self._settings.identity)
        lease = Lease(self._cluster, *place)
        try:
            await self._end_replicas(deployment)
            await asyncio.wait_for(lease.acquire(), LEASE_SECONDS)
            await self._work_under(lease)
        except TimeoutError:
            logger.error(
                "the lease %s is not to be had: whoever holds it still works; stop it and uninstall"
                " again, or leave all to it and uninstall with --no-hooks",
                self._settings.lease_name,
            )
            return False
        finally:
            await lease.release()
            await self._cluster.close()
            await self._store.redis.aclose()
        logger.info("let go of %d JobGroups, of which %d run", self._released, self._running)
        return not self._failed

    async def _end_replicas(self, deployment: str) -> None:
        """Stop the operator, so that no replica is there to take the lease back."""
        folder = f"/apis/apps/v1/namespaces/{self._settings.namespace}/deployments"
        none = {"spec": {"replicas": 0}}
        try:
            await self._cluster.request("PATCH", f"{folder}/{deployment}/scale", none, MERGE)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _work_under(self, lease: Lease) -> None:
        """Let go of all objects while the lease is ours."""
        keeping = asyncio.create_task(lease.keep())
        working = asyncio.create_task(self._let_go_of_all())
        await asyncio.wait({keeping, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            raise ApiError(0, "the lease was lost on the way")
        keeping.cancel()
        await working

    async def _let_go_of_all(self) -> None:
        await self._wait_for_redis()
        for namespace in self._settings.namespaces or ("",):
            try:
                async for page in self._pages(namespace):
                    await asyncio.gather(*(self._try(body) for body in page))
            except ApiError as error:
                self._pass_by(namespace, error)

    def _pass_by(self, namespace: str, error: ApiError) -> None:
        """Say that a namespace cannot be looked through; the others are not to wait for it."""
        if namespace and error.code == 403:
            # With a namespace go the rights in it, and trying again brings back neither.
            said = "nothing is let go in %s, for nobody may look there any more: %s"
            logger.warning(said, namespace, error)
        else:
            logger.error("%s cannot be looked through: %s", namespace or "the cluster", error)
            self._failed += 1

    async def _wait_for_redis(self) -> None:
        until, failures = time.monotonic() + REDIS_SECONDS, 0
        while True:
            try:
                await self._store.redis.ping()
                return
            except RedisError as error:
                if time.monotonic() > until:
                    place = self._settings.redis_place
                    logger.warning("going on without Redis at %s: %s", place, error)
                    return
                failures += 1
                await asyncio.sleep(min(backoff(failures), 1))

    async def _pages(self, namespace: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield all JobGroups of a namespace, or of the cluster if none is named."""
        where = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/{API_VERSION}{where}/{PLURAL}?limit={PAGE}"
        token = ""
        while True:
            # Without a definition there are no objects.
            found = await self._cluster.find("GET", path + token) or {"items": []}
            yield found["items"]
            following = found.get("metadata", {}).get("continue")
            if not following:
                break
            token = f"&continue={quote(following)}"

    async def _try(self, body: dict[str, Any]) -> None:
        ref = ref_of(body)
        name = f"{ref.namespace}/{ref.name}"
        current: dict[str, Any] | None = body
        try:
            while current and Resource.read(current).claimed:
                with contextlib.suppress(Conflict):
                    await self._let_go(name, current)
                    return
                current = await self._cluster.read(ref)
        except ApiError as error:
            if error.code != 404:
                logger.error("%s cannot be let go: %s", name, error)
                self._failed += 1

    async def _let_go(self, name: str, body: dict[str, Any]) -> None:
        """Take the finalizer off, after all that can still be done for the object is done."""
        resource = Resource.read(body)
        if resource.deleting:
            await self._leave(name, resource)
        await self._cluster.put_metadata(body, {"finalizers": released(body)})
        self._released += 1
        if not resource.deleting and not resource.ended:
            self._running += 1
            logger.warning("%s (%s) still runs: %s", name, resource.uid, UNDRIVEN.message)
            with contextlib.suppress(ApiError):
                await self._cluster.post_event(
                    body["metadata"]["namespace"], event_of(UNDRIVEN, body, now_ms())
                )

    async def _leave(self, name: str, resource: Resource) -> None:
        """Do for an object that is being deleted what the operator does when its namespace goes."""
        try:
            group = await self._store.read(resource.uid)
            step = next_step(resource, group, "", now_ms())
            if step is Step.CANCEL:
                with contextlib.suppress(RefusedError):
                    await self._store.cancel(resource.uid)
            if step is Step.REMOVE:
                await self._store.remove(resource.uid)
            else:
                await self._store.disown(resource.uid)
                if group:
                    logger.warning("%s (%s) goes, and is not undone yet", name, resource.uid)
        except (RedisError, RefusedError) as error:
            said = "%s (%s) goes, and Redis does not know of it: %s"
            logger.warning(said, name, resource.uid, error)


def main(arguments: Sequence[str]) -> int:
    """Let go of everything; whatever goes wrong is one sentence."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    # It takes the lease as a replica does, and is none.
    logging.getLogger("handlers.lease").setLevel(logging.WARNING)
    if len(arguments) != 1:
        logger.critical("usage: python -m handlers.uninstall DEPLOYMENT")
        return 2
    take_deep_data()
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
