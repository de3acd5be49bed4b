"""A twin of the operator, written with kopf's own create and delete handlers.

The benchmark compares the operator with it. The twin creates the group, writes ACTIVE, and writes
the final status when its driver has settled the group. It is not for production.
"""

import asyncio
import os
from collections import defaultdict
from typing import Any

import kopf
from prometheus_client import CollectorRegistry

from handlers.kube.client import ApiClient, Conflict
from handlers.kube.refs import Ref
from handlers.telemetry.health import Health
from jobgroup import Driver, Store, connect
from jobgroup.definition.plan import plan_group
from jobgroup.model import names
from jobgroup.model.clock import now_ms
from jobgroup.model.snapshot import GroupState
from jobgroup.resource.decisions import Resource
from jobgroup.resource.jobgroup_spec import parse_definition
from jobgroup.resource.status import derive_status

refs: dict[str, Ref] = {}
# The status of these objects is ACTIVE.
active: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    settings.posting.enabled = False
    # Otherwise a burst opens more connections than redis-py allows.
    settings.queueing.worker_limit = 20
    settings.queueing.idle_timeout = 0.05
    await Health(int(os.environ["PORT"]), CollectorRegistry()).start()
    memo.api = ApiClient(settings)
    memo.store = Store(connect(os.environ["REDIS_URL"]), os.environ["BULLMQ_PREFIX"])

    def ended(group: GroupState) -> None:
        asyncio.get_running_loop().create_task(write_end(memo, group))

    memo.driver = asyncio.create_task(Driver(memo.store, on_settled=ended).run())


async def write_end(memo: kopf.Memo, group: GroupState) -> None:
    """Write the final status, but not before kopf has written ACTIVE and would overwrite it."""
    if ref := refs.pop(group.id, None):
        await active[ref.uid].wait()
    while ref and (body := await memo.api.read(ref)):
        try:
            await memo.api.put_status(body, await status_of(memo, body, group))
        except Conflict:
            continue
        return


async def status_of(memo: kopf.Memo, body: Any, group: GroupState | None) -> dict[str, Any]:
    uid = Resource.read(body).uid
    group = group or await memo.store.read(uid)
    job_names = {names.job_id(uid, n): job["name"] for n, job in enumerate(body["spec"]["jobs"])}
    jobs = await memo.store.read_jobs(uid)
    return derive_status(body["metadata"]["generation"], {}, now_ms(), group, jobs, job_names)


@kopf.on.create("jobgroups.dev/v1alpha1", "jobgroups")
async def create(body: kopf.Body, patch: kopf.Patch, memo: kopf.Memo, **_: Any) -> None:
    whole = dict(body)
    meta = whole["metadata"]
    definition = parse_definition(whole)
    refs[meta["uid"]] = Ref(meta["namespace"], meta["name"], meta["uid"])
    await memo.store.create([plan_group(definition, meta["uid"])])
    patch.status.update(await status_of(memo, whole, None))


@kopf.on.event("jobgroups.dev/v1alpha1", "jobgroups")
async def note(uid: str, status: kopf.Status, **_: Any) -> None:
    if status.get("state") == "ACTIVE":
        active[uid].set()


@kopf.on.delete("jobgroups.dev/v1alpha1", "jobgroups")
async def delete(uid: str, memo: kopf.Memo, **_: Any) -> None:
    await memo.store.remove(uid)
