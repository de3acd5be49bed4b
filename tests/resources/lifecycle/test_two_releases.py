"""Two releases that watch the same objects: the one that claimed an object keeps it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from handlers.kube.releases import GRACE_SECONDS
from jobgroup.resource.decisions import GROUP_ANNOTATION, RELEASE_ANNOTATION
from testbed.servers.apiserver import OPERATOR_NAMESPACE
from testbed.servers.operator import OperatorProcess
from testbed.servers.redis import RedisServer
from testbed.servers.stock import returns
from testbed.support.resources import manifest, until
from testbed.support.sagas import job
from testbed.support.scrapes import Scrape
from testbed.support.stages import PAY, UNDOS, Stage, lease_rights
from tests.resources.lifecycle.test_label_selector import BANK, SHOP, labelled
from tests.resources.looking import group_id, traces

HASTY = Path(__file__).with_name("hasty_releases.py")
# In a queue without a worker.
LATER = job("ship", "later")


class Second:
    """A second release on the API server of a stage."""

    def __init__(self, stage: Stage) -> None:
        self.lease = f"second-{stage.namespace}"
        self.name = f"{OPERATOR_NAMESPACE}/{self.lease}"
        self._stage = stage
        stage.api.user.create(*lease_rights(self.lease))

    def start(self, redis: RedisServer | None = None, **env: str) -> OperatorProcess:
        """Start its operator, with the Redis of the stage or another one."""
        url = {"REDIS_URL": redis.url} if redis else {}
        env = {"LEASE_NAME": self.lease, **url, **env}
        return self._stage.operator("second", None, HASTY, **env)

    def warning(self) -> tuple[str, str, str]:
        """Return its Event about an object of the first release."""
        message = (
            f"the release {OPERATOR_NAMESPACE}/{self._stage.lease} has claimed this JobGroup; the"
            f" release {self.name} watches it too, and leaves it alone: give the releases different"
            " namespaces or label selectors"
        )
        return ("Warning", "ClaimedByOtherRelease", message)


@pytest.fixture
def second(stage: Stage) -> Second:
    return Second(stage)


@pytest.fixture
def other_redis(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "other"
    folder.mkdir()
    with RedisServer(folder) as redis:
        yield redis


def claimed_by(stage: Stage, name: str = "order") -> str:
    return str(stage.resources.get(name)["metadata"]["annotations"].get(RELEASE_ANNOTATION))


def start_order(stage: Stage) -> None:
    """Wait until an order is half done, under the first release."""
    stage.resources.apply(manifest("order", PAY, LATER, undos=UNDOS))
    stage.resources.reaches("order", progress="1/2")
    assert claimed_by(stage) == f"{OPERATOR_NAMESPACE}/{stage.lease}"


def leaves(replica: OperatorProcess) -> None:
    """Wait until an operator has left both orders alone: it posts an Event for each."""
    until(
        lambda: Scrape.of(replica).value("jobgroup_api_writes_total", what="event") == 2,
        lambda: replica.log,
    )


@pytest.mark.parametrize("is_shared", [True, False], ids=["one-redis", "two-redis"])
async def test_an_object_of_a_living_release_is_left_alone(
    stage: Stage, second: Second, other_redis: RedisServer, is_shared: bool
) -> None:
    redis = None if is_shared else other_redis
    stage.operator("first")
    worker = await stage.worker()
    start_order(stage)
    stage.resources.apply(manifest("undone", PAY, job("ship", "never"), undos=UNDOS))
    stage.resources.reaches("undone", progress="1/2")
    version = stage.resources.get("order")["metadata"]["resourceVersion"]
    with second.start(redis) as replica:
        leaves(replica)
    replica = second.start(redis)
    leaves(replica)
    left = "2 JobGroups are left to the release"
    until(lambda: left in replica.log, lambda: replica.log)
    assert Scrape.of(replica).value("jobgroup_left_objects") == 2
    assert stage.resources.events("order") == [second.warning()]
    assert stage.resources.get("order")["metadata"]["resourceVersion"] == version
    # Its status, its end and its deletion are those of the release that claimed it.
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("order", state="COMPLETED")
    for name in ("order", "undone"):
        stage.resources.delete(name)
        stage.resources.goes(name)
    assert stage.resources.events("order") == [second.warning()]
    assert await stage.runs(worker, name="refund") == 1
    writes = Scrape.of(replica)
    assert writes.value("jobgroup_api_writes_total", what="status") in (None, 0)


async def test_objects_of_a_release_without_a_lease_are_taken_over(
    stage: Stage, second: Second
) -> None:
    first = stage.operator("first")
    worker = await stage.worker()
    start_order(stage)
    replica = second.start()
    until(lambda: bool(stage.resources.events("order")), lambda: replica.log)
    first.server.kill()
    stage.free_lease()
    until(lambda: claimed_by(stage) == second.name, lambda: replica.log)
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("order", state="COMPLETED")
    assert await stage.runs(worker, name="pay") == 1
    # The first one now leaves it alone.
    stage.operator("first")
    uid = group_id(stage.resources, "order")
    stage.resources.delete("order")
    stage.resources.goes("order")
    until(lambda: traces(stage.store, uid) == [], lambda: str(traces(stage.store, uid)))


async def test_a_lease_that_expired_long_ago_is_as_good_as_none(
    stage: Stage, second: Second
) -> None:
    first = stage.operator("first")
    await stage.worker()
    start_order(stage)
    first.server.kill()
    leases = stage.api.user.within(OPERATOR_NAMESPACE)
    assert GRACE_SECONDS < 3600
    before = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    leases.patch("Lease", stage.lease, before)
    replica = second.start()
    until(lambda: claimed_by(stage) == second.name, lambda: replica.log)
    assert stage.resources.events("order") == []


async def test_a_group_in_another_redis_is_lost_until_its_release_is_back(
    stage: Stage, second: Second, other_redis: RedisServer
) -> None:
    first = stage.operator("first")
    worker = await stage.worker()
    start_order(stage)
    first.server.kill()
    stage.free_lease()
    replica = second.start(other_redis)
    stage.resources.stalls("order", "RedisStateLost")
    assert claimed_by(stage) != second.name
    stage.operator("first")
    stage.resources.condition("order", "Reconciling", "True")
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("order", state="COMPLETED")
    stage.resources.delete("order")
    stage.resources.goes("order")
    assert replica.server.code is None


async def test_an_object_moves_to_another_living_release_with_its_label(
    stage: Stage, second: Second
) -> None:
    stage.operator("first", WATCH_LABEL_SELECTOR="team=shop")
    worker = await stage.worker()
    stage.resources.apply(labelled(manifest("order", PAY, LATER, undos=UNDOS), SHOP))
    stage.resources.reaches("order", progress="1/2")
    replica = second.start(WATCH_LABEL_SELECTOR="team=bank")
    stage.resources.kubectl("label", "jobgroup", "order", "--overwrite", f"team={BANK['team']}")
    until(lambda: claimed_by(stage) == second.name, lambda: replica.log)
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("order", state="COMPLETED")
    assert stage.resources.events("order") == []


async def test_a_claim_of_a_release_whose_lease_may_not_be_read_is_removed_by_hand(
    stage: Stage, second: Second
) -> None:
    with stage.operator("first"):
        worker = await stage.worker()
        start_order(stage)
    other = f"{RELEASE_ANNOTATION}=elsewhere/first"
    stage.resources.kubectl("annotate", "jobgroup", "order", "--overwrite", other)
    replica = second.start(KOPF_RUN_NAMESPACES=stage.namespace)
    until(lambda: bool(stage.resources.events("order")), lambda: replica.log)
    ((_, reason, message),) = stage.resources.events("order")
    assert reason == "ClaimedByOtherRelease"
    assert "it may not read the Lease of elsewhere/first" in message
    stage.resources.kubectl("annotate", "jobgroup", "order", f"{RELEASE_ANNOTATION}-")
    until(lambda: claimed_by(stage) == second.name, lambda: replica.log)
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("order", state="COMPLETED")


async def test_an_object_whose_claim_names_no_release_is_of_any(stage: Stage) -> None:
    with stage.operator("first"):
        await stage.worker()
        start_order(stage)
    note = stage.resources.get("order")["metadata"]["annotations"][GROUP_ANNOTATION]
    stage.resources.kubectl("annotate", "jobgroup", "order", f"{RELEASE_ANNOTATION}-")
    replica = stage.operator("again", LEASE_NAME="jobgroup-operator")
    until(
        lambda: claimed_by(stage) == f"{OPERATOR_NAMESPACE}/jobgroup-operator", lambda: replica.log
    )
    assert stage.resources.get("order")["metadata"]["annotations"][GROUP_ANNOTATION] == note
    stage.resources.delete("order")
    stage.resources.goes("order")


async def test_a_removed_claim_is_written_again_by_the_release_that_has_the_group(
    stage: Stage, second: Second, other_redis: RedisServer
) -> None:
    first = stage.operator("first")
    worker = await stage.worker()
    start_order(stage)
    second.start(other_redis)
    until(lambda: bool(stage.resources.events("order")), lambda: first.log)
    stage.resources.kubectl("annotate", "jobgroup", "order", f"{RELEASE_ANNOTATION}-")
    until(lambda: claimed_by(stage) == f"{OPERATOR_NAMESPACE}/{stage.lease}", lambda: first.log)
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("order", state="COMPLETED")
