"""An object -> the plan of its group.

The plan of a large object takes tens of milliseconds, so it is computed in slices: other tasks run
between two of them. A thread would not help. The event loop would have to wait for it at least as
long, because only one thread of Python runs at a time.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from handlers.kube.refs import Ref
from jobgroup.definition.plan import Plan, plan_in_slices
from jobgroup.definition.slices import Sliced, Value, finish
from jobgroup.resource.jobgroup_spec import parse_definition_in_slices


async def plan_object(ref: Ref, body: Mapping[str, Any], owner: str) -> Plan:
    """Return the plan of the group that an object defines; raise if its spec is invalid."""
    plan = _plan(ref, body, owner)
    return await let_others_run(plan) if ref.is_large else finish(plan)


async def let_others_run(computation: Sliced[Value]) -> Value:
    """Return the result of a computation; let other tasks run whenever it takes a break."""
    while True:
        try:
            next(computation)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)


def _plan(ref: Ref, body: Mapping[str, Any], owner: str) -> Sliced[Plan]:
    definition = yield from parse_definition_in_slices(body)
    yield
    plan = yield from plan_in_slices(definition, ref.uid, owner, ref.full_name)
    yield
    return plan
