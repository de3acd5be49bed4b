"""The pools by workload and by queue, and which of several pools scales a workload."""

from typing import Any

from handlers.kube.refs import Ref
from handlers.workerpools.pool import Pool
from handlers.workerpools.pools import Pools
from jobgroup.resource import reasons
from jobgroup.resource.kinds import WORKERPOOL

CREATED = "2026-01-01T00:00:0{}Z"


def pool(name: str, queue: str, target: str, second: int = 0, namespace: str = "shop") -> Pool:
    ref = Ref(namespace, name, f"{namespace}-{name}", WORKERPOOL.plural)
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    body: dict[str, Any] = {
        "metadata": {"creationTimestamp": CREATED.format(second)},
        "spec": {"queueName": queue, "scaleTargetRef": workload},
    }
    return Pool(ref, body)


def pools_of(*members: Pool) -> Pools:
    pools = Pools()
    for each in members:
        pools.add(each)
    return pools


def test_pools_are_found_by_queue_and_by_workload() -> None:
    mail, post = pool("mail", "letters", "mailers"), pool("post", "letters", "posters")
    other = pool("other", "parcels", "mailers", namespace="bank")
    pools = pools_of(mail, post, other)
    assert list(pools) == [mail, post, other]
    assert pools.of_queues({"letters"}) == [mail, post]
    assert sorted(each.ref.name for each in pools.of_queues({"letters", "parcels"})) == [
        "mail",
        "other",
        "post",
    ]
    assert pools.of_queues({"nothing"}) == []
    # A workload of the same name in another namespace is another workload.
    assert pools.of_workload(mail.target) == [mail]
    assert pools.of_workload(other.target) == [other]


def test_a_removed_pool_leaves_nothing_behind() -> None:
    mail, post = pool("mail", "letters", "mailers"), pool("post", "letters", "mailers")
    pools = pools_of(mail, post)
    assert pools.remove(mail.ref.uid) is mail
    assert pools.remove(mail.ref.uid) is None
    assert mail.ref.uid not in pools
    assert pools.get(mail.ref.uid) is None
    assert pools.of_queues({"letters"}) == pools.of_workload(mail.target) == [post]
    pools.remove(post.ref.uid)
    assert list(pools) == []
    assert pools._index == {}


def test_only_the_oldest_pool_of_a_workload_has_no_conflict() -> None:
    young, old = pool("young", "a", "mailers", 2), pool("old", "b", "mailers", 1)
    pools = pools_of(young, old)
    assert pools.older_rivals(young) == [old]
    assert pools.older_rivals(old) == []
    assert pools.conflict(old) is None
    problem = pools.conflict(young)
    assert problem is not None
    assert problem.reason == reasons.CONFLICT
    assert "the WorkerPool old scales the same workload" in problem.message


def test_a_conflict_is_kept_after_a_restart_until_the_pool_was_reconciled() -> None:
    young = pool("young", "a", "mailers")
    young.body["status"] = {
        "conditions": [{"type": "Ready", "reason": reasons.CONFLICT, "message": "old is older"}]
    }
    pools = pools_of(young)
    problem = pools.conflict(young)
    assert problem is not None
    assert (problem.reason, problem.message) == (reasons.CONFLICT, "old is older")
    young.is_new = False
    assert pools.conflict(young) is None
