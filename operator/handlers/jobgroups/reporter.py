"""What is known of a group -> its object's status and events: written when something changed, and
never more often than is good for the API server.
"""

import logging
import time
from collections.abc import Awaitable, Sequence

from handlers.cluster import Cluster, Ref
from handlers.failpoints import failpoint
from handlers.memory import Body, Memory
from handlers.workqueue import WorkQueue
from jobgroup.conditions import Trouble
from jobgroup.decisions import Resource, look_again_at, own_status
from jobgroup.listeners import nobody_listens
from jobgroup.news import News, event_of, news_of, news_of_trouble
from jobgroup.snapshot import ENDED, GroupJob, GroupState
from jobgroup.status import derive_status, skipped
from jobgroup.store import Store, now_ms

logger = logging.getLogger(__name__)

# Counts are written at most this often, and less often the larger an object is: each write stores
# all of it anew.
PACE_SECONDS = 1.0
PACE_BYTES = 50_000
# Undos that nobody runs are told of after so long, for workers may be on their way,
ARRIVE_SECONDS = 3.0
# and workers looked for this often until there are some, then in case they go.
UNHEARD_SECONDS = 5.0
HEARD_SECONDS = 60.0


class Reporter:
    """Writes to objects, as often as there is something to tell and it is good for the server."""

    def __init__(
        self, cluster: Cluster, store: Store, queue: WorkQueue[Ref], memory: Memory
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue
        self._memory = memory

    async def write(self, write: Awaitable[Body]) -> Body:
        """Do a write and remember it."""
        body = await write
        self._memory.wrote(body)
        return body

    async def report(
        self,
        ref: Ref,
        body: Body,
        group: GroupState | None = None,
        jobs: Sequence[GroupJob] | None = None,
        trouble: Trouble | None = None,
        state: str = "",
    ) -> None:
        """Bring the status up to date; `state` is what to say where there is no group.

        Where a group's jobs were not read along with it, they are read now if they are needed.
        """
        stands = own_status(body)
        if group and not group.ended and group.state == stands.get("state"):
            self.come_back(ref, body, group)
            if self.is_too_soon(ref):
                return
        if jobs is None:
            jobs = await self._store.read_jobs(ref.uid) if group else []
        if group and (passed := skipped(stands.get("state") or "", group)):
            body = await self._update(ref, body, passed, jobs, None, "")
        body = await self._update(ref, body, group, jobs, trouble, state)
        self.come_back(ref, body, group)
        if own_status(body).get("state") in ENDED:
            self._memory.forget(ref.uid)

    async def _update(
        self,
        ref: Ref,
        body: Body,
        group: GroupState | None,
        jobs: Sequence[GroupJob],
        trouble: Trouble | None,
        state: str,
    ) -> Body:
        """Write the status and post the news, if there is any."""
        stands, names = own_status(body), _names(ref, body)
        status = derive_status(
            body["metadata"]["generation"],
            {**stands, "state": state} if state else stands,
            now_ms(),
            group,
            jobs,
            names,
            trouble,
            await self._nobody_listens(ref, group, jobs),
        )
        if status == stands:
            return body
        news = news_of(stands, group, names) if group else []
        if trouble:
            news += news_of_trouble(stands, trouble)
        # Before the status, which would keep them from being posted after a crash.
        await self._post(ref, body, news)
        failpoint("status")
        return await self.write(self._cluster.put_status(body, status))

    async def tell_of_end(self, ref: Ref, body: Body, group: GroupState) -> None:
        """Post what an object that goes will not tell any more: above all, undos that failed."""
        await self._post(ref, body, news_of(own_status(body), group, _names(ref, body)))

    async def _post(self, ref: Ref, body: Body, news: Sequence[News]) -> None:
        for each in news:
            failpoint("event")
            event = event_of(each, body, now_ms())
            if await self._cluster.post_event(ref.namespace, event):
                level = logging.WARNING if each.kind == "Warning" else logging.INFO
                job = {"job": each.job} if each.job else {}
                logger.log(level, "%s: %s", each.reason, each.message, extra=ref.context | job)

    def come_back(self, ref: Ref, body: Body, group: GroupState | None) -> None:
        """Have an object looked at again when time alone will call for it."""
        again = look_again_at(Resource.read(body), group)
        if again is not None:
            self._queue.add(ref, max(0.0, (again - now_ms()) / 1000))

    async def _nobody_listens(
        self, ref: Ref, group: GroupState | None, jobs: Sequence[GroupJob]
    ) -> str:
        """Say where undos wait and no worker is, and have that looked at again."""
        if group is None or group.state != "COMPENSATING":
            return ""
        age = (now_ms() - (group.failed_at or 0)) / 1000
        if age < ARRIVE_SECONDS:
            self._queue.add(ref, ARRIVE_SECONDS - age)
            return ""
        connections = await self._store.queues.connections()
        said = nobody_listens(self._store.prefix, jobs, connections)
        self._queue.add(ref, UNHEARD_SECONDS if said else HEARD_SECONDS)
        return said

    def is_too_soon(self, ref: Ref) -> bool:
        """Say whether counts have to wait, and have them looked at when they need not."""
        written = self._memory.written.get(ref.uid)
        if written is None:
            return False
        pace = max(PACE_SECONDS, written.size / PACE_BYTES)
        wait = written.at + pace - time.monotonic()
        if wait > 0:
            self._queue.add(ref, wait)
        return wait > 0


def _names(ref: Ref, body: Body) -> dict[str, str]:
    """Return the names of an object's jobs, by id."""
    return {f"{ref.uid}-{n}": job["name"] for n, job in enumerate(body["spec"].get("jobs") or ())}
