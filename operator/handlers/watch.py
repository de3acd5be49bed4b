"""Watch events of all kinds -> the operator, which queues them: kopf drops an event that fails."""

from typing import Any

import kopf

from jobgroup.resource.kinds import API_VERSION, KINDS


async def dispatch(
    event: kopf.RawEvent, resource: kopf.Resource, memo: kopf.Memo, **_: Any
) -> None:
    """Pass an event to the controller of its kind."""
    memo.operator.dispatch(resource.plural, event)


for kind in KINDS:
    kopf.on.event(API_VERSION, kind.plural)(dispatch)
