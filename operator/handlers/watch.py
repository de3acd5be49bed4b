"""Every event -> the work queue or the pools, and nothing else: kopf forgets what fails here."""

from typing import Any

import kopf

from handlers.cluster import ref_of
from jobgroup import pool
from jobgroup.resource import API_VERSION, PLURAL


@kopf.on.event(API_VERSION, PLURAL)
async def notice(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Pass an event on."""
    memo.operator.metrics.heard()
    body = event["object"]
    ref = ref_of(body)
    if event["type"] == "DELETED":
        memo.operator.reconciler.forget(ref)
    else:
        memo.operator.reconciler.notice(ref, body)


@kopf.on.event(API_VERSION, pool.PLURAL)
async def notice_pool(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Pass an event of a WorkerPool on."""
    memo.operator.metrics.heard()
    body = event["object"]
    if event["type"] == "DELETED":
        memo.operator.pools.forget(ref_of(body))
    else:
        memo.operator.pools.notice(ref_of(body), dict(body))
