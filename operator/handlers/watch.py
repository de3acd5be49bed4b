"""Every event of a JobGroup -> the work queue, and nothing else: kopf forgets what fails here."""

from typing import Any

import kopf

from handlers.cluster import GROUP_VERSION, PLURAL, Ref


@kopf.on.event(GROUP_VERSION, PLURAL)
async def notice(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
    """Pass an event on."""
    body = event["object"]
    meta = body["metadata"]
    ref = Ref(meta["namespace"], meta["name"], meta["uid"])
    if event["type"] == "DELETED":
        memo.operator.reconciler.forget(ref)
    else:
        memo.operator.reconciler.notice(ref, body)
