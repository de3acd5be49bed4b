"""Leader election: there are never two leaders, and never none for long.

The clock is the event loop's and jumps over each wait, so these tests take no time.
"""

import asyncio
import copy
import itertools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.kube import leader
from handlers.kube.client import ApiClient, ApiError, Conflict
from handlers.kube.leader import LENGTH_SECONDS, MARGIN_SECONDS, RENEW_SECONDS, RETRY_SECONDS, Lease

FOLDER = "/apis/coordination.k8s.io/v1/namespaces/sagas/leases"
HOLDS = LENGTH_SECONDS - MARGIN_SECONDS


class Clock(selectors.DefaultSelector):
    """A clock that jumps over each wait."""

    def __init__(self, now: float = 0.0) -> None:
        super().__init__()
        self.now = now

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all tasks wait, and no timer is set"
        self.now += max(timeout, 0)
        assert self.now < 10_000, "a task waits forever"
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock = clock

    def time(self) -> float:
        return self.clock.now


class Leases:
    """The leases of an API server that refuses writes with an old resourceVersion."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.versions = itertools.count(1)
        self.before: Callable[[str, str], Awaitable[None]] | None = None

    def client(self) -> ApiClient:
        fake = SimpleNamespace(find=self.find, write=self.write)
        return cast(ApiClient, fake)

    async def find(self, method: str, path: str) -> dict[str, Any] | None:
        assert method == "GET"
        await self._answer("GET", path)
        return copy.deepcopy(self.stored.get(path))

    async def write(
        self, what: str, method: str, path: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        self.writes.append(what)
        await self._answer(method, path)
        body = copy.deepcopy(body)
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.stored:
                raise Conflict(409, "it exists")
        else:
            assert method == "PUT"
            if path not in self.stored:
                raise ApiError(404, "not found")
            if body["metadata"]["resourceVersion"] != self.version(path):
                raise Conflict(409, "it has changed")
        body["metadata"]["resourceVersion"] = str(next(self.versions))
        self.stored[path] = body
        return body

    def version(self, path: str) -> str:
        return str(self.stored[path]["metadata"]["resourceVersion"])

    async def _answer(self, method: str, path: str) -> None:
        await asyncio.sleep(0)
        if self.before:
            await self.before(method, path)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.stored[f"{FOLDER}/leader"]["spec"]
        return spec


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return a function that runs a test with the clock."""
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def run(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: Loop(clock)) as runner:
            runner.run(story)

    return run


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def leases() -> Leases:
    return Leases()


def replica(leases: Leases, identity: str) -> Lease:
    return Lease(leases.client(), "sagas", "leader", identity)


async def away(method: str, path: str) -> None:
    raise ApiError(0, "the API server is out of reach")


async def silent(method: str, path: str) -> None:
    await asyncio.sleep(30)
    raise ApiError(0, "the API server is out of reach")


def test_a_new_lease_object_is_not_held(leases: Leases, run: Run) -> None:
    """This also applies just after boot, when the monotonic clock is near zero."""

    async def story() -> None:
        lease = replica(leases, "a")
        assert not lease.is_held
        await lease.keep()
        await lease.release()
        assert leases.stored == {}

    run(story())


def test_the_first_replica_creates_the_lease(leases: Leases, run: Run, clock: Clock) -> None:
    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        assert (first.is_held, clock.now) == (True, 0)
        assert leases.spec.pop("renewTime") == leases.spec.pop("acquireTime")
        assert leases.spec == {
            "holderIdentity": "a",
            "leaseDurationSeconds": LENGTH_SECONDS,
            "leaseTransitions": 0,
        }

    run(story())


def test_a_second_replica_waits_while_the_first_renews(
    leases: Leases, run: Run, clock: Clock
) -> None:
    async def story() -> None:
        first, second = replica(leases, "a"), replica(leases, "b")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        for _ in range(1_000):
            await asyncio.sleep(RETRY_SECONDS)
            assert first.is_held
            assert not second.is_held
        assert not keeping.done()
        assert not waiting.done()
        assert leases.spec["holderIdentity"] == "a"
        assert leases.spec["leaseTransitions"] == 0
        # The holder renews the lease as often as intended.
        assert int(leases.version(f"{FOLDER}/leader")) == pytest.approx(1_000 / RENEW_SECONDS, 0.01)

    run(story())


@pytest.mark.parametrize("renewals", range(4))
def test_a_second_replica_takes_over_when_the_lease_expired_and_not_earlier(
    leases: Leases, run: Run, clock: Clock, renewals: int
) -> None:
    async def story() -> None:
        first, second = replica(leases, "a"), replica(leases, "b")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(renewals * RENEW_SECONDS + 0.5)
        keeping.cancel()
        await waiting
        renewed_at = renewals * RENEW_SECONDS
        assert renewed_at + LENGTH_SECONDS < clock.now <= renewed_at + LENGTH_SECONDS + 3
        assert (first.is_held, second.is_held) == (False, True)
        assert leases.spec["holderIdentity"] == "b"
        assert leases.spec["leaseTransitions"] == 1

    run(story())


def test_a_new_replica_waits_for_a_whole_lease_duration(
    leases: Leases, run: Run, clock: Clock
) -> None:
    """It cannot know when the lease was renewed, because the clocks of two machines differ."""

    async def story() -> None:
        await replica(leases, "a").acquire()
        leases.spec["renewTime"] = "1970-01-01T00:00:00.000000Z"
        clock.now = 1_000
        await replica(leases, "b").acquire()
        assert clock.now > 1_000 + LENGTH_SECONDS

    run(story())


def test_the_duration_in_the_lease_is_respected(leases: Leases, run: Run, clock: Clock) -> None:
    async def story() -> None:
        await replica(leases, "a").acquire()
        leases.spec["leaseDurationSeconds"] = 100
        await replica(leases, "b").acquire()
        assert clock.now > 100
        assert leases.spec["leaseDurationSeconds"] == LENGTH_SECONDS

    run(story())


def test_a_released_lease_is_acquired_at_once(leases: Leases, run: Run, clock: Clock) -> None:
    async def story() -> None:
        first, second = replica(leases, "a"), replica(leases, "b")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(5)
        await first.release()
        assert not first.is_held
        await waiting
        assert clock.now <= 5 + RETRY_SECONDS
        assert leases.spec["holderIdentity"] == "b"

    run(story())


def test_only_the_holder_releases_the_lease(leases: Leases, run: Run) -> None:
    async def story() -> None:
        first, second = replica(leases, "a"), replica(leases, "b")
        await first.acquire()
        await second.release()
        assert leases.spec["holderIdentity"] == "a"
        leases.spec["holderIdentity"] = "c"
        await first.release()
        assert leases.spec["holderIdentity"] == "c"

    run(story())


def test_a_failed_release_only_delays(leases: Leases, run: Run) -> None:
    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        leases.before = away
        await first.release()
        assert not first.is_held

    run(story())


def test_a_restarted_holder_acquires_its_lease_at_once(
    leases: Leases, run: Run, clock: Clock
) -> None:
    async def story() -> None:
        await replica(leases, "a").acquire()
        await replica(leases, "a").acquire()
        assert clock.now == 0
        assert leases.spec["leaseTransitions"] == 0

    run(story())


@pytest.mark.parametrize("there", [False, True])
def test_one_of_many_candidates_acquires_the_lease(
    leases: Leases, run: Run, clock: Clock, there: bool
) -> None:
    async def story() -> None:
        if there:
            await replica(leases, "z").acquire()
        racers = [replica(leases, name) for name in "abcdefgh"]
        tasks = [asyncio.create_task(each.acquire()) for each in racers]
        await asyncio.sleep(LENGTH_SECONDS - 1 if there else 0.5)
        assert sum(task.done() for task in tasks) == (not there)
        await asyncio.sleep(3 if there else 0)
        assert [each.is_held for each in racers].count(True) == 1
        assert sum(task.done() for task in tasks) == 1
        (winner,) = (name for name, each in zip("abcdefgh", racers, strict=True) if each.is_held)
        assert leases.spec["holderIdentity"] == winner

    run(story())


def test_a_deleted_lease_is_created_again(leases: Leases, run: Run) -> None:
    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        leases.stored.clear()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(RENEW_SECONDS + 1)
        assert leases.spec["holderIdentity"] == "a"
        assert first.is_held
        keeping.cancel()

    run(story())


def test_a_lease_is_acquired_when_the_api_server_is_back(
    leases: Leases, run: Run, clock: Clock
) -> None:
    async def story() -> None:
        leases.before = away
        waiting = asyncio.create_task(replica(leases, "a").acquire())
        await asyncio.sleep(100)
        assert not waiting.done()
        leases.before = None
        await waiting
        assert clock.now <= 100 + RETRY_SECONDS

    run(story())


def test_the_holder_stops_when_another_holds_the_lease(
    leases: Leases, run: Run, clock: Clock
) -> None:
    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        leases.spec["holderIdentity"] = "b"
        await first.keep()
        assert clock.now == RENEW_SECONDS
        assert not first.is_held
        assert leases.spec["holderIdentity"] == "b"

    run(story())


@pytest.mark.parametrize("problem", [away, silent])
def test_the_holder_stops_without_an_api_server_before_another_starts(
    leases: Leases, run: Run, clock: Clock, problem: Callable[[str, str], Awaitable[None]]
) -> None:
    """The API server refuses requests, or does not answer."""

    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        leases.before = problem
        await first.keep()
        assert clock.now == HOLDS
        assert not first.is_held

    run(story())


def test_the_holder_survives_a_short_outage_of_the_api_server(
    leases: Leases, run: Run, clock: Clock
) -> None:
    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        for _ in range(20):
            leases.before = away
            await asyncio.sleep(2 * RENEW_SECONDS)
            assert first.is_held
            leases.before = None
            await asyncio.sleep(RENEW_SECONDS)
        assert not keeping.done()
        keeping.cancel()

    run(story())


def test_the_lease_duration_starts_when_a_renewal_is_requested(
    leases: Leases, run: Run, clock: Clock
) -> None:
    """The response may be late, and other replicas measure from the write."""

    async def slow(method: str, path: str) -> None:
        if method == "POST":
            await asyncio.sleep(5)

    async def story() -> None:
        first = replica(leases, "a")
        leases.before = slow
        await first.acquire()
        leases.before = None
        clock.now = HOLDS - 0.1
        assert first.is_held
        clock.now = HOLDS
        assert not first.is_held

    run(story())


@pytest.mark.parametrize("successor", [False, True])
def test_a_suspended_holder_knows_that_its_lease_expired(
    leases: Leases, run: Run, clock: Clock, successor: bool
) -> None:
    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(RENEW_SECONDS + 1)
        clock.now += 60
        assert not first.is_held
        if successor:
            leases.spec["holderIdentity"] = "b"
        before = copy.deepcopy(leases.stored)
        await keeping
        assert not first.is_held
        await first.release()
        assert leases.stored == before

    run(story())


@pytest.mark.parametrize("leave", [Lease.keep, Lease.release])
def test_a_late_renewal_is_refused(
    leases: Leases, run: Run, leave: Callable[[Lease], Awaitable[None]]
) -> None:
    """The holder is suspended between its read and its write, and loses the lease meanwhile."""

    async def replaced(method: str, path: str) -> None:
        if method == "PUT":
            leases.before = None
            leases.spec["holderIdentity"] = "b"
            leases.stored[path]["metadata"]["resourceVersion"] = "99"

    async def story() -> None:
        first = replica(leases, "a")
        await first.acquire()
        leases.before = replaced
        await leave(first)
        assert not first.is_held
        assert leases.spec["holderIdentity"] == "b"
        assert leases.version(f"{FOLDER}/leader") == "99"

    run(story())


def test_every_write_is_counted(leases: Leases, run: Run) -> None:
    async def story() -> None:
        lease = Lease(leases.client(), "sagas", "leader", "a")
        await lease.acquire()
        await lease.release()
        assert leases.writes == ["lease", "lease"]

    run(story())
