"""A tenant with very many or very large groups does not hold up the groups of others.

One worker reconciles the objects, which all exist when the operator starts: the order of the jobs
in their queue is the order of the reconciles. The neighbour is the last one in the list of objects.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.kube.refs import LARGE_JOBS
from testbed.support.resources import Resources, manifest, namespace_named
from testbed.support.sagas import job
from testbed.support.stages import PAY, PREFIX, Stage
from testbed.support.waiting import wait_for

MANY = 30
FEW = 4
LARGE = [job(f"pay-{n}") for n in range(LARGE_JOBS + 1)]


@pytest.fixture
def neighbour(stage: Stage) -> Iterator[Resources]:
    """A namespace that the API server lists after the namespace of the stage."""
    name = f"z-{stage.namespace}"
    stage.api.user.create(namespace_named(name))
    found = Resources(stage.api, name)
    yield found
    found.delete("order")
    found.goes("order")
    stage.api.user.delete("Namespace", name)


async def flood(stage: Stage, count: int, *jobs: Any) -> None:
    await stage.send("POST", [("", manifest(f"flood-{n}", *jobs)) for n in range(count)])


def created(stage: Stage) -> list[str]:
    """Return the ids of all groups in the order in which they were created."""
    jobs = stage.store.lrange(f"{PREFIX}:payments:wait", 0, -1)
    return list(dict.fromkeys(str(each).rpartition("-")[0] for each in reversed(jobs)))


def place_of(stage: Stage, of: Resources, name: str, groups: int) -> int:
    """Start the operator, and wait for all groups; return which one a group was."""
    stage.operator(WORKERS="1")
    wait_for(lambda: len(created(stage)) == groups)
    return created(stage).index(of.get(name)["metadata"]["uid"])


async def test_a_neighbour_is_reconciled_before_a_flood_of_groups_is_done(
    stage: Stage, neighbour: Resources
) -> None:
    await flood(stage, MANY, PAY)
    neighbour.apply(manifest("order", PAY))
    assert place_of(stage, neighbour, "order", MANY + 1) < MANY // 2


async def test_a_neighbour_is_reconciled_before_a_flood_of_large_groups_is_done(
    stage: Stage, neighbour: Resources
) -> None:
    await flood(stage, FEW, *LARGE)
    neighbour.apply(manifest("order", PAY))
    assert place_of(stage, neighbour, "order", FEW + 1) < FEW


async def test_a_small_group_does_not_wait_for_large_ones_of_its_namespace(stage: Stage) -> None:
    await flood(stage, FEW, *LARGE)
    stage.resources.apply(manifest("order", PAY))
    assert place_of(stage, stage.resources, "order", FEW + 1) < FEW
