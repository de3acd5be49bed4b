"""Objects that are left to other releases: when they are reconciled again."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.jobgroups import left
from handlers.jobgroups.cache import ObjectCache
from handlers.jobgroups.left import LeftObjects
from handlers.kube.client import ApiClient, ApiError
from handlers.kube.refs import Ref, ref_of
from handlers.kube.releases import Releases, Scope, Verdict
from handlers.kube.workqueue import WorkQueue
from jobgroup import Store
from jobgroup.resource.decisions import GROUP_ANNOTATION, RELEASE_ANNOTATION, Claimant
from jobgroup.resource.kinds import API_VERSION, JOBGROUP
from testbed.support.sagas import job
from tests.handlers.jobgroups.reconcilers import build_reconciler

OTHER, THIRD = "sagas/other", "sagas/third"
ALIVE = Verdict(Claimant.ALIVE)


class World:
    """Objects that are left, and what is known about their releases."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict | Exception] = {OTHER: ALIVE, THIRD: ALIVE}
        self.cache = ObjectCache()
        self.queue: WorkQueue[Ref] = WorkQueue()
        releases = SimpleNamespace(look=self.look, retain=lambda names: None)
        self.left = LeftObjects(cast(Releases, releases), self.cache, self.queue)

    async def look(self, release: str) -> Verdict:
        found = self.verdicts[release]
        if isinstance(found, Exception):
            raise found
        return found

    def leave(self, body: dict[str, Any]) -> None:
        self.left.add(ref_of(body), body, ALIVE)

    def sees(self, body: dict[str, Any]) -> None:
        """Pass a watch event, as the reconciler does."""
        if not self.left.observe(body["metadata"]["uid"], body):
            self.cache.track(ref_of(body))
            self.cache.observe(body)
            self.queue.add(ref_of(body))

    def returned(self) -> list[str]:
        """Return the names of the objects that are queued."""
        return [ref.name for ref in self.queue.get_due()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(left, "PAUSE_SECONDS", 0)
    return World()


def an_object(
    name: str = "order", release: str = OTHER, version: int = 1, **labels: str
) -> dict[str, Any]:
    meta = {
        "namespace": "shop",
        "name": name,
        "uid": name,
        "resourceVersion": str(version),
        "labels": labels,
        "annotations": {GROUP_ANNOTATION: f"{name}/e1", RELEASE_ANNOTATION: release},
    }
    head = {"apiVersion": API_VERSION, "kind": JOBGROUP.name}
    return {**head, "metadata": meta, "spec": {"jobs": [job("pay")]}}


async def test_an_error_about_one_release_keeps_no_object_of_another(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.leave(an_object("one", OTHER))
    world.leave(an_object("two", THIRD))
    world.verdicts = {OTHER: RuntimeError("unexpected"), THIRD: Verdict(Claimant.GONE)}
    with caplog.at_level(logging.ERROR):
        await world.left.check()
    assert world.returned() == ["two"]
    assert f"cannot tell whether the release {OTHER} is gone" in caplog.text


async def test_an_object_stays_left_while_its_claim_and_its_labels_are_the_same(
    world: World,
) -> None:
    world.leave(an_object(team="shop"))
    world.sees({**an_object(version=2, team="shop"), "status": {"state": "ACTIVE"}})
    assert world.returned() == []
    assert "order" in world.left
    assert "order" not in world.cache.running


@pytest.mark.parametrize(
    "changed",
    [
        an_object(release="", version=2, team="shop"),
        an_object(release=THIRD, version=2, team="shop"),
        an_object(version=2, team="bank"),
        an_object(version=2),
    ],
)
async def test_an_object_is_reconciled_when_its_claim_or_a_label_changes(
    world: World, changed: dict[str, Any]
) -> None:
    world.leave(an_object(team="shop"))
    world.sees(changed)
    assert world.returned() == ["order"]
    assert "order" not in world.left
    assert "order" in world.cache.running


async def test_an_object_that_changed_since_it_was_read_is_not_left(world: World) -> None:
    world.sees(an_object(release="", version=2))
    assert not world.left.add(ref_of(an_object()), an_object(), ALIVE)
    assert "order" not in world.left
    # The event has queued it.
    assert world.returned() == ["order"]
    assert world.left.add(ref_of(an_object()), an_object(version=2), ALIVE)
    assert "order" in world.left


async def test_an_object_that_was_deleted_is_not_reconciled(world: World) -> None:
    world.leave(an_object())
    world.left.discard("order")
    world.verdicts = {OTHER: Verdict(Claimant.GONE)}
    await world.left.check()
    assert world.returned() == []


@pytest.mark.parametrize(
    "verdict", [Verdict(Claimant.GONE), Verdict(Claimant.ALIVE, Scope(("bank",)))]
)
async def test_all_objects_of_a_release_are_reconciled_when_its_lease_changes_its_meaning(
    world: World, verdict: Verdict
) -> None:
    for name, release in (("one", OTHER), ("two", OTHER), ("three", THIRD)):
        world.leave(an_object(name, release))
    await world.left.check()
    assert world.returned() == []
    world.verdicts[OTHER] = verdict
    await world.left.check()
    assert world.returned() == ["one", "two"]
    assert set(world.cache.running) == {"one", "two"}


async def test_each_release_that_objects_are_left_to_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name, release in (("one", OTHER), ("two", OTHER), ("three", THIRD)):
        world.leave(an_object(name, release))
    assert len(world.left) == 3
    for _ in range(2):
        await world.left.check()
    assert sorted(caplog.messages) == [
        f"1 JobGroups are left to the release {THIRD}, which claimed them",
        f"2 JobGroups are left to the release {OTHER}, which claimed them",
    ]
    caplog.clear()
    world.left.discard("three")
    await world.left.check()
    world.leave(an_object("three", THIRD))
    await world.left.check()
    assert caplog.messages == [f"1 JobGroups are left to the release {THIRD}, which claimed them"]


class Server:
    """An API server with one object and the Lease of the release that claimed it."""

    def __init__(self) -> None:
        self.body = an_object(team="shop")
        self.queue: WorkQueue[Ref] = WorkQueue()
        self.reconciler = build_reconciler(
            cast(ApiClient, self), cast(Store, None), queue=self.queue
        )
        # What happens during the read of the Lease, and during the write of the Event.
        self.on_lease: Callable[[], None] = lambda: None
        self.on_event: Callable[[], None] = lambda: None

    async def read(self, _: Ref) -> dict[str, Any]:
        return self.body

    async def find(self, *_: str) -> dict[str, Any]:
        self.on_lease()
        return {"metadata": {}, "spec": {"renewTime": "9999-01-01T00:00:00Z"}}

    async def post_event(self, *_: object) -> bool:
        self.on_event()
        return True

    def change(self) -> None:
        """Change the label of the object; the operator sees the event at once."""
        self.body = an_object(version=2, team="bank")
        self.reconciler.enqueue(ref_of(self.body), self.body)

    async def reconcile(self) -> bool:
        """Reconcile the object as a worker does; return whether it is left, or queued again."""
        ref = ref_of(self.body)
        self.queue.add(ref)
        self.queue.get_due()
        try:
            await self.reconciler.reconcile(ref)
        finally:
            self.queue.done(ref)
        is_left = "order" in self.reconciler._left
        assert is_left is (len(self.queue) == 0)
        return is_left


@pytest.mark.parametrize("moment", ["on_lease", "on_event"])
async def test_an_object_that_changes_while_it_is_being_left_is_reconciled_again(
    moment: str,
) -> None:
    server = Server()
    server.reconciler.enqueue(ref_of(server.body), server.body)
    setattr(server, moment, server.change)
    assert not await server.reconcile()
    setattr(server, moment, lambda: None)
    assert await server.reconcile()


async def test_an_object_is_left_only_when_its_event_is_posted() -> None:
    server = Server()

    def refuse() -> None:
        raise ApiError(500, "not now")

    server.on_event = refuse
    with pytest.raises(ApiError):
        await server.reconcile()
    assert "order" not in server.reconciler._left
    server.on_event = lambda: None
    assert await server.reconcile()
