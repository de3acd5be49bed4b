"""Whether another release is alive, from its Lease; the clocks are those of the test."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.kube import releases
from handlers.kube.client import LEASES, ApiClient, ApiError
from handlers.kube.leader import LENGTH_SECONDS
from handlers.kube.releases import CHECK_SECONDS, GRACE_SECONDS, Releases, Scope
from handlers.settings import read_settings
from jobgroup.resource.decisions import GROUP_ANNOTATION, RELEASE_ANNOTATION, Claimant

OTHER = "sagas/other"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENDED = LENGTH_SECONDS + GRACE_SECONDS


class World:
    """The Leases of an API server, and the clocks of this process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.skew = 0.0
        self.leases: dict[str, dict[str, Any]] = {}
        self.refusal = 0
        self.reads = Counter[str]()

    def now(self, _: object) -> datetime:
        return NOON + timedelta(seconds=self.seconds + self.skew)

    def renew(self, name: str = OTHER, scope: Scope | None = None) -> None:
        spec = {
            "holderIdentity": "pod",
            "leaseDurationSeconds": LENGTH_SECONDS,
            "renewTime": (NOON + timedelta(seconds=self.seconds)).isoformat(),
        }
        annotations = scope.annotation if scope else {}
        self.leases[name] = {"metadata": {"annotations": annotations}, "spec": spec}

    async def find(self, method: str, path: str) -> dict[str, Any] | None:
        namespace, _, name = path.removeprefix(f"{LEASES}v1/namespaces/").partition("/leases/")
        self.reads[f"{namespace}/{name}"] += 1
        if self.refusal:
            raise ApiError(self.refusal, "no")
        return self.leases.get(f"{namespace}/{name}")

    def releases(self, **env: str) -> Releases:
        api = cast(ApiClient, SimpleNamespace(find=self.find))
        return Releases(api, read_settings({"POD_NAMESPACE": "sagas", **env}))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(releases, "time", SimpleNamespace(monotonic=lambda: world.seconds))
    clock = SimpleNamespace(now=world.now, fromisoformat=datetime.fromisoformat)
    monkeypatch.setattr(releases, "datetime", clock)
    return world


async def claimant(found: Releases, release: str = OTHER) -> Claimant:
    meta = {
        "namespace": "shop",
        "uid": "1",
        "labels": {"team": "shop"},
        "annotations": {GROUP_ANNOTATION: "1/e1", RELEASE_ANNOTATION: release},
    }
    return (await found.claimant({"metadata": meta}))[0]


async def test_a_claim_of_this_release_or_of_none_needs_no_read(world: World) -> None:
    found = world.releases()
    for release in ("", "sagas/jobgroup-operator"):
        assert await claimant(found, release) is Claimant.OURS
    assert not world.reads


async def test_one_read_serves_all_objects_for_a_while(world: World) -> None:
    world.renew()
    found = world.releases()
    for world.seconds in (0, 1, CHECK_SECONDS - 1):
        assert [await claimant(found) for _ in range(100)] == [Claimant.ALIVE] * 100
    assert world.reads == {OTHER: 1}
    world.seconds = CHECK_SECONDS
    await claimant(found)
    assert world.reads == {OTHER: 2}


async def test_a_release_without_a_lease_is_gone(world: World) -> None:
    assert await claimant(world.releases()) is Claimant.GONE


@pytest.mark.parametrize("name", ["no-name", "a/", "/b", "../x", "a/b/c", "A/b", "a/..", "a/b?x"])
async def test_a_text_that_names_no_lease_is_of_no_release(world: World, name: str) -> None:
    assert await claimant(world.releases(), name) is Claimant.GONE
    assert not world.reads


async def test_a_lease_that_is_not_renewed_counts_for_some_minutes(world: World) -> None:
    world.renew()
    world.leases[OTHER]["spec"]["holderIdentity"] = ""
    found = world.releases()
    for world.seconds in (0, ENDED):
        assert await claimant(found) is Claimant.ALIVE
        assert not found.is_unconfirmed
    world.seconds = ENDED + CHECK_SECONDS
    assert await claimant(found) is Claimant.GONE
    world.seconds += CHECK_SECONDS
    world.renew()
    assert await claimant(found) is Claimant.ALIVE


async def test_a_lease_without_a_time_has_expired(world: World) -> None:
    world.renew()
    del world.leases[OTHER]["spec"]["renewTime"]
    found = world.releases()
    await claimant(found)
    world.seconds = CHECK_SECONDS
    assert await claimant(found) is Claimant.GONE


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z"])
async def test_a_time_that_python_does_not_know_counts_as_none(world: World, time: str) -> None:
    world.renew()
    world.leases[OTHER]["spec"]["renewTime"] = time
    found = world.releases()
    assert await claimant(found) is Claimant.ALIVE
    world.seconds = CHECK_SECONDS
    assert await claimant(found) is Claimant.GONE


async def test_an_old_lease_is_read_again_before_its_release_counts_as_gone(world: World) -> None:
    world.renew()
    world.seconds = 10 * ENDED
    found = world.releases()
    assert await claimant(found) is Claimant.ALIVE
    assert found.is_unconfirmed
    world.seconds += CHECK_SECONDS
    assert await claimant(found) is Claimant.GONE
    assert not found.is_unconfirmed


async def test_a_release_that_renews_its_lease_is_alive_by_any_clock(world: World) -> None:
    found = world.releases()
    for world.skew in (-10 * ENDED, 10 * ENDED, 20 * ENDED):
        world.renew()
        assert await claimant(found) is Claimant.ALIVE
        world.seconds += CHECK_SECONDS


async def test_a_lease_that_is_renewed_is_confirmed_by_any_clock(world: World) -> None:
    world.skew = 10 * ENDED
    found = world.releases()
    for is_unconfirmed in (True, False, False):
        world.renew()
        await claimant(found)
        assert found.is_unconfirmed is is_unconfirmed
        world.seconds += CHECK_SECONDS


async def test_a_release_that_is_gone_stays_gone_while_nothing_is_left_to_it(world: World) -> None:
    world.renew()
    world.renew("sagas/third")
    found = world.releases()
    await claimant(found, "sagas/third")
    for world.seconds in (10 * ENDED, 10 * ENDED + CHECK_SECONDS):
        await claimant(found)
    found.retain(set())
    # As after a resync.
    for _ in range(3):
        world.seconds += 100 * CHECK_SECONDS
        assert await claimant(found) is Claimant.GONE
        found.retain(set())
    # A release that is alive is forgotten, and so is one without a Lease.
    assert set(found._readings) == {OTHER}
    world.leases.clear()
    world.seconds += CHECK_SECONDS
    assert await claimant(found) is Claimant.GONE
    found.retain(set())
    assert not found._readings


async def test_leases_that_may_not_be_read_say_nothing(world: World) -> None:
    world.renew()
    limited = world.releases(KOPF_RUN_NAMESPACES="shop", POD_NAMESPACE="shop")
    assert await claimant(limited) is Claimant.UNKNOWN
    assert not world.reads  # it would be refused
    world.renew("shop/other")
    assert await claimant(limited, "shop/other") is Claimant.ALIVE
    world.refusal = 403
    assert await claimant(world.releases()) is Claimant.UNKNOWN
    world.refusal = 500
    with pytest.raises(ApiError):
        await claimant(world.releases())


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope(("bank", "shop")), Claimant.ALIVE),
        (Scope(("bank",)), Claimant.GONE),
        (Scope((), "team=shop"), Claimant.ALIVE),
        (Scope((), "team=bank"), Claimant.GONE),
        (Scope(("shop",), "team=bank"), Claimant.GONE),
        # It is not known what it selects.
        (Scope((), "((("), Claimant.ALIVE),
        (Scope((), "\ud800"), Claimant.ALIVE),
        (Scope(("bank",), "((("), Claimant.GONE),
    ],
)
async def test_an_object_that_its_release_does_not_watch_is_taken_over(
    world: World, scope: Scope, expected: Claimant
) -> None:
    world.renew(scope=scope)
    assert await claimant(world.releases()) is expected
    assert world.reads == {OTHER: 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"namespaces": 1, "selector": ""}',
        '{"namespaces": "bank", "selector": ""}',
        '{"namespaces": [["bank"]], "selector": ""}',
        '{"namespaces": ["bank"], "selector": ["team=bank"]}',
        100_000 * "[",
    ],
    ids=lambda text: text[:40],
)
async def test_a_lease_that_does_not_say_what_it_watches_watches_everything(
    world: World, text: str
) -> None:
    world.renew()
    world.leases[OTHER]["metadata"]["annotations"] = {releases.WATCHES: text}
    assert await claimant(world.releases()) is Claimant.ALIVE
    world.leases[OTHER]["metadata"] = {}
    assert await claimant(world.releases()) is Claimant.ALIVE
