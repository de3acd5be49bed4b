"""How each fixture is made: real scripts create groups, a stock client works on them, and stops.

A story leaves its groups in a state, and says what becomes of them: how each group ends, and which
jobs run until then. Stories are for the format that this release writes. A release that raises the
format adds stories, and its fixtures get a folder of their own.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup import JobGroups
from jobgroup.definition.lifetime import MAX_SECONDS
from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import parse_group
from jobgroup.errors import (
    GroupExistsError,
    GroupRemovedError,
    RedisStateLostError,
    RefusedError,
)
from jobgroup.model import names
from jobgroup.model.clock import TOMBSTONE_MS, now_ms
from jobgroup.store.scripts import load
from testbed.servers.stock import (
    FLAVOURS,
    Behaviour,
    StockClient,
    fails,
    fails_for_good,
    hangs,
    returns,
    waits_for_child,
)
from testbed.support.sagas import job, peek, undo
from testbed.support.waiting import eventually

HOUR = 3_600_000
# Later than the fixture is written, and over when it is used.
SOON = 20_000
NODE = ("bullmq5", "bullmq6")
OWNER = "cluster-a"
ORDER = '{"orderId":"123"}'
REFUND = {"charge": undo("refund")}
BOTH = {"charge": undo("refund"), "reserve": undo("restock", when="Started")}
NO = fails_for_good("nicht vorrätig: «42»")

_REMOVE = load("remove_group")


@dataclass
class Scene:
    """The groups of one story, a stock client, and what is to be expected of them."""

    url: str
    groups: JobGroups
    client: StockClient
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    expected: dict[str, dict[str, Any]] = field(default_factory=dict)
    # What the workers do that continue.
    behaviour: dict[str, Behaviour] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    # Queues with workers beside those of the definitions, and queues without workers.
    more_queues: list[str] = field(default_factory=list)
    idle_queues: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return self.groups.store.prefix

    @property
    def redis(self) -> Redis:
        return self.groups.store.redis

    async def add(
        self,
        group_id: str,
        *jobs: Mapping[str, Any],
        undos: Mapping[str, Any] | None = None,
        owner: str = names.HEADLESS,
        resource: str = "",
        generated: bool = False,
    ) -> None:
        """Create a group."""
        self.note(group_id, *jobs, undos=undos, owner=owner, resource=resource, generated=generated)
        definition = parse_group("order", jobs, undos)
        plan = plan_group(definition, group_id, owner, resource, generated)
        assert await self.groups.store.create([plan]) == [True]

    def note(
        self,
        group_id: str,
        *jobs: Mapping[str, Any],
        undos: Mapping[str, Any] | None = None,
        owner: str = names.HEADLESS,
        resource: str = "",
        generated: bool = False,
    ) -> None:
        """Note how a group is created."""
        self.added[group_id] = {
            "definition": {"name": "order", "jobs": jobs, "compensation": undos},
            "owner": owner,
            "resource": resource,
            "is_id_generated": generated,
        }

    async def work(self, queue: str, **behaviour: Behaviour) -> None:
        """Start a worker of the stock client."""
        await self.client.work(queue, behaviour)

    async def settle(self, group_id: str, request: str = "") -> None:
        """Do what a driver does once."""
        store = self.groups.store
        entry = await store.redis.lindex(names.wakeups_key(self.prefix), 0)
        if entry and names.group_of_wakeup(str(entry)) == group_id and not request:
            results = [result for _, result in await store.wakeups.settle()]
        else:
            results = await store.settle([group_id], request)
        assert [each for each in results if isinstance(each, Exception)] == []

    async def settle_until(self, group_id: str, **wanted: Any) -> None:
        """Do what a driver does until a group has these values."""

        async def has_them() -> bool:
            await self.settle(group_id)
            found = await peek(self.groups.store, group_id)
            assert found is not None
            return all(getattr(found, name) == value for name, value in wanted.items())

        await eventually(has_them)

    async def replace_client(self) -> None:
        """End the client and its workers; the new one has no worker."""
        await self.client.close()
        await self.client.end()
        self.client = await StockClient.start(self.client.flavour, self.url, self.prefix)

    def expect(self, group_id: str, state: str, **counts: int) -> None:
        """Note how a group ends, and its counts that are not 0: completed, failed and so on."""
        self.expected.setdefault(group_id, {})["end"] = {"state": state, **counts}

    def expect_gone(self, group_id: str) -> None:
        """Note that a driver removes a group, or that it is gone already."""
        self.expected.setdefault(group_id, {})["end"] = None

    def expect_kept(self, group_id: str, *members: int) -> None:
        """Note which members still exist after the end of their group."""
        self.expected.setdefault(group_id, {})["kept"] = list(members)

    def expect_again(self, group_id: str, refused: type[RefusedError]) -> None:
        """Note why the group cannot be created once more; else nothing happens then."""
        self.expected.setdefault(group_id, {})["again"] = refused.code

    def expect_undo(self, group_id: str, key: str, data: str, opts: str) -> None:
        """Note what the hash of an undo contains."""
        undos = self.expected.setdefault(group_id, {}).setdefault("undos", {})
        undos[f"{self.prefix}:{key}"] = {"data": data, "opts": opts}


@dataclass(frozen=True)
class Story:
    """One fixture; the function does what happens before it is written."""

    name: str
    about: str
    flavour: str
    tell: Callable[[Scene], Awaitable[None]]
    # The format that its groups have: the lowest one that describes them.
    format: int = 1


STORIES: dict[str, Story] = {}
Tell = Callable[[Scene], Awaitable[None]]


def story(*flavours: str, number: int = 1) -> Callable[[Tell], Tell]:
    """Make a fixture of a format with each of these stock clients, or with one of 6.x."""

    def register(tell: Tell) -> Tell:
        about = " ".join((tell.__doc__ or "").split())
        for flavour in flavours or ("bullmq6",):
            name = tell.__name__.replace("_", "-") + (f"-{flavour}" if flavours else "")
            STORIES[name] = Story(name, about, flavour, tell, number)
        return tell

    return register


def undo_data(n: int, name: str, value: str, given: str) -> str:
    """Return the data of the undo of a member of `order-1`."""
    return (
        f'{{"groupId":"order-1","originalJobName":"{name}","originalJobId":"order-1-{n}",'
        f'"originalReturnValue":{value},"compensationData":{given}}}'
    )


def undo_opts(attempts: int, kind: str, delay: int) -> str:
    """Return the options of an undo."""
    return (
        f'{{"attempts":{attempts},"backoff":{{"type":"{kind}","delay":{delay}}},'
        '"removeOnComplete":false,"removeOnFail":false}'
    )


# Groups of which no job has begun.


@story()
async def waiting(scene: Scene) -> None:
    """All members wait; there are no undos."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"), job("ship", "parcels"))
    scene.expect("order-1", "COMPLETED", completed=3)
    scene.runs = {"charge": 1, "reserve": 1, "ship": 1}


@story()
async def waiting_with_undos(scene: Scene) -> None:
    """All members wait; each kind of mapping: with defaults, with options, with each `when`."""
    data = {"note": 'Größe 42, "rot"', "amount": 12345678901234567890, "rate": 1.10, "none": None}
    charge, reserve = job("charge"), job("reserve")
    undos = {
        "charge": {"name": "refund"},
        "book": {"name": "cancel", "data": data, "opts": {"attempts": 5, "backoff": 20}},
        "reserve": undo(
            "restock", "Started", attempts=2, backoff={"type": "exponential", "delay": 10}
        ),
    }
    members = [charge, job("book"), job("pack"), reserve]
    await scene.add("order-1", *members, undos=undos)
    scene.behaviour = {"charge": returns(7), "book": returns("b-1"), "reserve": NO}
    scene.expect("order-1", "FAILED", completed=3, failed=1, undone=3)
    scene.runs = {"charge": 1, "book": 1, "pack": 1, "reserve": 1}
    scene.runs |= {"refund": 1, "cancel": 1, "restock": 1}

    given = '{"note":"Größe 42, \\"rot\\"","amount":12345678901234567890,"rate":1.1,"none":null}'
    queue = "payments:compensation"
    scene.expect_undo(
        "order-1",
        f"{queue}:order-1-0-undo",
        undo_data(0, "charge", "7", "{}"),
        undo_opts(3, "exponential", 1000),
    )
    scene.expect_undo(
        "order-1",
        f"{queue}:order-1-1-undo",
        undo_data(1, "book", '"b-1"', given),
        undo_opts(5, "fixed", 20),
    )
    scene.expect_undo(
        "order-1",
        f"{queue}:order-1-3-undo",
        undo_data(3, "reserve", "null", ORDER),
        undo_opts(2, "exponential", 10),
    )


@story()
async def waiting_with_options(scene: Scene) -> None:
    """Members that are delayed, prioritized, added to the head, and that have other options."""
    members = [
        job("charge", delay=100),
        job("reserve", delay=100, priority=3),
        job("pack", "parcels", priority=5),
        job("label", "parcels", lifo=True),
        job("ship", "parcels", attempts=3, backoff=50, keepLogs=2, stackTraceLimit=1),
        job("mail", "mails", attempts=2, backoff={"type": "exponential", "delay": 10}),
    ]
    await scene.add("order-1", *members)
    scene.behaviour = {"ship": fails(1), "mail": fails(1)}
    scene.expect("order-1", "COMPLETED", completed=6)
    scene.runs = {"charge": 1, "reserve": 1, "pack": 1, "label": 1, "ship": 2, "mail": 2}


@story()
async def waiting_with_retention(scene: Scene) -> None:
    """Members with each kind of removeOnComplete and removeOnFail."""
    members = [
        job("charge", removeOnComplete=True),
        job("reserve", "inventory", removeOnComplete=1),
        job("reserve", "inventory", removeOnComplete={"count": 1}),
        job("pack", removeOnFail=True),
        job("mail", "mails", removeOnComplete={"age": 3600, "count": 5}, removeOnFail=0),
        job("ship", "parcels", removeOnComplete=False),
    ]
    await scene.add("order-1", *members)
    scene.expect("order-1", "COMPLETED", completed=6)
    scene.expect_kept("order-1", 2, 3, 4, 5)
    scene.runs = {"charge": 1, "reserve": 2, "pack": 1, "mail": 1, "ship": 1}


@story()
async def waiting_with_generated_id(scene: Scene) -> None:
    """A group with a generated id has no digest."""
    group_id = names.generated_id(2**127 + 2**64 + 1)
    await scene.add(group_id, job("charge"), job("refuse"), undos=REFUND, generated=True)
    scene.behaviour = {"refuse": NO}
    scene.expect(group_id, "FAILED", completed=1, failed=1, undone=1)
    scene.runs = {"charge": 1, "refuse": 1, "refund": 1}


@story()
async def owned(scene: Scene) -> None:
    """Groups of an operator: one waits, one has ended, two lost their resource while they ran."""
    ids = {
        "waits": "0b8f5d0e-6f57-4a0b-9d0c-4c5f2f3e8a01",
        "ended": "0b8f5d0e-6f57-4a0b-9d0c-4c5f2f3e8a02",
        "released": "0b8f5d0e-6f57-4a0b-9d0c-4c5f2f3e8a03",
        "orphaned": "0b8f5d0e-6f57-4a0b-9d0c-4c5f2f3e8a04",
    }
    store = scene.groups.store
    await store.incarnation()
    await scene.add(ids["ended"], job("charge"), owner=OWNER, resource="shop/order-2")
    await scene.work("payments")
    await scene.client.heard("completed", name="charge")
    await scene.settle(ids["ended"])
    await scene.replace_client()
    for name in ("waits", "released", "orphaned"):
        resource = f"shop/{name}"
        await scene.add(ids[name], job("charge"), undos=REFUND, owner=OWNER, resource=resource)
        scene.expect(ids[name], "COMPLETED", completed=1)
    await store.orphan(ids["released"], release=True)
    await store.orphan(ids["orphaned"])
    newest = await store.streams.newest_change(OWNER)
    await store.streams.save_checkpoint(OWNER, "jobgroup-system/jobgroup-operator", newest)
    await store.reviews.claim("the driver before", 4000)
    scene.expect(ids["ended"], "COMPLETED", completed=1)
    scene.expect_gone(ids["released"])
    scene.runs = {"charge": 3}


@story(*FLAVOURS)
async def paused(scene: Scene) -> None:
    """Members and undos for a paused queue have the priority 0; others were there before."""
    await scene.add("order-1", job("charge"))
    await scene.client.manage("payments", "pause")
    members = [job("reserve"), job("pack", lifo=True), job("ship", priority=2)]
    await scene.add("order-2", *members)
    await scene.add(
        "order-3", job("bill", "bills"), job("refuse", "bills"), undos={"bill": undo("refund")}
    )
    await scene.client.manage("bills:compensation", "pause")
    await scene.work("bills", refuse=NO)
    await scene.client.heard("failed", name="refuse")
    await scene.settle("order-3")
    scene.expect("order-1", "COMPLETED", completed=1)
    scene.expect("order-2", "COMPLETED", completed=3)
    scene.expect("order-3", "FAILED", completed=1, failed=1, undone=1)
    scene.runs = {"charge": 1, "reserve": 1, "pack": 1, "ship": 1, "refund": 1}


# Running groups.


@story(*FLAVOURS)
async def half_done(scene: Scene) -> None:
    """One member of four completed, one is active, one waits for another attempt, one waits."""
    members = [
        job("charge"),
        job("reserve", "inventory"),
        job("ship", "parcels", attempts=2, backoff=SOON),
        job("mail", "mails"),
    ]
    await scene.add("order-1", *members, undos=BOTH)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.work("inventory", reserve=hangs())
    await scene.work("parcels", ship=fails(1))
    await scene.client.heard("completed", name="charge")
    await scene.client.heard("started", name="reserve")
    await scene.client.heard("failed", name="ship")
    scene.expect("order-1", "COMPLETED", completed=4)
    scene.runs = {"mail": 1, "ship": 1}


@story(*FLAVOURS)
async def settled_half_done(scene: Scene) -> None:
    """One member completed and is sealed, because the group was settled; another one waits."""
    await scene.add("order-1", job("charge"), job("refuse", "inventory"), undos=REFUND)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", name="charge")
    await scene.settle("order-1")
    scene.behaviour = {"refuse": NO}
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.runs = {"refuse": 1, "refund": 1}


@story(*FLAVOURS)
async def woken(scene: Scene) -> None:
    """Groups on the wake-up list: all members of one completed, a member of the other failed."""
    await scene.add("order-1", job("charge"), job("reserve"), undos=BOTH)
    members = [job("charge"), job("refuse"), job("mail", "mails")]
    await scene.add("order-2", *members, undos=REFUND)
    await scene.work("payments", refuse=NO)
    await scene.client.heard("failed", name="refuse")
    scene.expect("order-1", "COMPLETED", completed=2)
    scene.expect("order-2", "FAILED", completed=1, failed=1, cancelled=1, undone=1)
    scene.runs = {"refund": 1}
    # A worker could be faster than the driver.
    scene.idle_queues = ["mails"]


@story(*FLAVOURS)
async def run_again(scene: Scene) -> None:
    """A person runs a completed member again: one group was settled since then, one was not."""
    await scene.add("order-1", job("charge"), job("mail", "mails"), undos=REFUND)
    await scene.add("order-2", job("charge"), job("mail", "mails"), undos=REFUND)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", id="order-1-0")
    await scene.client.heard("completed", id="order-2-0")
    await scene.replace_client()
    for group_id in ("order-1", "order-2"):
        await scene.client.manage("payments", "retry", "completed", job=f"{group_id}-0")
        scene.expect(group_id, "COMPLETED", completed=2)
    await scene.settle("order-1")
    scene.runs = {"charge": 2, "mail": 2}


@story()
async def run_again_and_trimmed(scene: Scene) -> None:
    """A completed member waits for another run; only its group still knows its return value."""
    await scene.add("order-1", job("charge"), job("refuse", "inventory"), undos=REFUND)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", name="charge")
    await scene.replace_client()
    await scene.client.manage("payments", "retry", "completed", job="order-1-0")
    await scene.settle("order-1")
    await scene.redis.xtrim(names.events_key(scene.prefix, "payments"), 1, approximate=False)
    scene.behaviour = {"refuse": NO}
    # A worker could run the member before the group is given up.
    scene.idle_queues = ["payments"]
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.expect_undo(
        "order-1",
        "payments:compensation:order-1-0-undo",
        undo_data(0, "charge", '{"id":"tx-1"}', ORDER),
        undo_opts(3, "exponential", 1000),
    )
    scene.runs = {"refuse": 1, "refund": 1}


@story("bullmq5")
async def retried_in_bulk(scene: Scene) -> None:
    """A bulk retry of 5.x leaves a member that waits in the failed part of the ledger."""
    await scene.add("order-1", job("refuse"), job("mail", "mails"))
    await scene.work("payments", refuse=NO)
    await scene.client.heard("failed", name="refuse")
    await scene.replace_client()
    await scene.client.manage("payments", "retryJobs")
    scene.expect("order-1", "COMPLETED", completed=2)
    scene.runs = {"refuse": 1, "mail": 1}


@story(*NODE)
async def waiting_for_child(scene: Scene) -> None:
    """A member waits for a child of its own."""
    await scene.add("order-1", job("charge"), undos={"charge": undo("refund", when="Started")})
    await scene.work("payments", charge=waits_for_child("banks"))
    await scene.client.heard("waits", name="charge")
    scene.expect("order-1", "COMPLETED", completed=1)
    scene.more_queues = ["banks"]
    scene.runs = {"child": 1, "charge": 1}


# Groups that were given up.


@story(*FLAVOURS)
async def doomed(scene: Scene) -> None:
    """A member failed while another one was active; one had completed, and one is cancelled."""
    members = [
        job("charge"),
        job("refuse", "bills"),
        job("reserve", "inventory"),
        job("mail", "mails"),
    ]
    await scene.add("order-1", *members, undos=BOTH)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.work("inventory", reserve=hangs())
    await scene.client.heard("completed", name="charge")
    await scene.client.heard("started", name="reserve")
    await scene.work("bills", refuse=NO)
    await scene.client.heard("failed", name="refuse")
    await scene.settle("order-1")
    scene.expect("order-1", "FAILED", completed=2, failed=1, cancelled=1, undone=2)
    scene.runs = {"refund": 1, "restock": 1}


@story(*FLAVOURS)
async def doomed_in_backoff(scene: Scene) -> None:
    """A member that was active at the cancel failed since then, and waits for another attempt."""
    members = [job("charge"), job("reserve", "inventory", attempts=2, backoff=SOON)]
    await scene.add("order-1", *members, undos=BOTH)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.work("inventory", reserve=hangs(fails(1)))
    await scene.client.heard("completed", name="charge")
    await scene.client.heard("started", name="reserve")
    await scene.groups.cancel_group("order-1")
    await scene.client.release("reserve")
    await scene.client.heard("failed", name="reserve")
    scene.expect("order-1", "FAILED", completed=1, cancelled=1, undone=2)
    # A worker could fail the member before a driver drops it.
    scene.idle_queues = ["inventory"]
    scene.runs = {"refund": 1, "restock": 1}


@story()
async def undos_waiting(scene: Scene) -> None:
    """Two undos wait; one is of a member that failed after it had started."""
    await scene.add("order-1", job("charge"), job("reserve"), undos=BOTH)
    await scene.work("payments", charge=returns({"id": "tx-1"}), reserve=NO)
    await scene.client.heard("failed", name="reserve")
    await scene.settle("order-1")
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=2)
    scene.runs = {"refund": 1, "restock": 1}


@story(*FLAVOURS)
async def undoing(scene: Scene) -> None:
    """Of three undos one completed, one is active, and one waits for another attempt."""
    members = [
        job("charge"),
        job("reserve", "inventory"),
        job("ship", "parcels"),
        job("refuse", "bills"),
    ]
    undos = {
        "charge": undo("refund"),
        "reserve": undo("restock"),
        "ship": undo("recall", attempts=2, backoff=SOON),
    }
    await scene.add("order-1", *members, undos=undos)
    for each in members:
        queue, name = each["queueName"], each["name"]
        await scene.work(queue, refuse=NO)
        await scene.client.heard("failed" if name == "refuse" else "completed", name=name)
    await scene.settle("order-1")
    await scene.work("payments:compensation")
    await scene.work("inventory:compensation", restock=hangs())
    await scene.work("parcels:compensation", recall=fails(1))
    await scene.client.heard("completed", name="refund")
    await scene.client.heard("started", name="restock")
    await scene.client.heard("failed", name="recall")
    scene.expect("order-1", "FAILED", completed=3, failed=1, undone=3)
    scene.runs = {"recall": 1}


@story()
async def undo_failed(scene: Scene) -> None:
    """Of three undos one failed and somebody removed one; the group was settled since then."""
    members = [job("charge"), job("reserve", "inventory"), job("ship", "parcels"), job("refuse")]
    undos = {"charge": undo("refund"), "reserve": undo("restock"), "ship": undo("recall")}
    await scene.add("order-1", *members, undos=undos)
    for queue in ("inventory", "parcels", "payments"):
        await scene.work(queue, refuse=NO)
    for name in ("charge", "reserve", "ship"):
        await scene.client.heard("completed", name=name)
    await scene.client.heard("failed", name="refuse")
    await scene.settle("order-1")
    await scene.work("payments:compensation", refund=fails_for_good("no account"))
    await scene.client.heard("failed", name="refund")
    await scene.client.manage("inventory:compensation", "remove", job="order-1-1-undo")
    await scene.settle("order-1")
    scene.expect("order-1", "FAILED_COMPENSATION", completed=3, failed=1, undone=1, undo_failed=2)
    scene.runs = {"recall": 1}


@story()
async def removed_member(scene: Scene) -> None:
    """Somebody removed a member: one group was settled since then, one was not."""
    members = [job("charge"), job("reserve", "inventory", delay=HOUR)]
    for group_id in ("order-1", "order-2"):
        await scene.add(group_id, *members, undos=BOTH)
    await scene.work("payments")
    for group_id in ("order-1", "order-2"):
        await scene.client.heard("completed", id=f"{group_id}-0")
        await scene.client.manage("inventory", "remove", job=f"{group_id}-1")
        scene.expect(group_id, "FAILED", completed=1, failed=1, undone=1)
    await scene.settle("order-1")
    scene.runs = {"refund": 2}


@story()
async def cancelled(scene: Scene) -> None:
    """Groups that were cancelled: nothing had begun, one was running, one had a deadline."""
    await scene.add("order-1", job("charge"), job("reserve", delay=HOUR), undos=BOTH)
    await scene.groups.cancel_group("order-1")
    members = [job("charge"), job("reserve", "inventory"), job("mail", "mails")]
    for group_id in ("order-2", "order-3"):
        await scene.add(group_id, *members, undos=BOTH)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.work("inventory", reserve=hangs())
    await scene.client.heard("completed", id="order-2-0")
    await scene.client.heard("completed", id="order-3-0")
    await scene.client.heard("started", id="order-2-1")
    await scene.groups.cancel_group("order-2")
    await scene.settle("order-3", "DeadlineExceeded")
    scene.expect("order-1", "FAILED", cancelled=2)
    scene.expect("order-2", "FAILED", completed=2, cancelled=1, undone=2)
    scene.expect("order-3", "FAILED", completed=1, cancelled=2, undone=1)
    scene.runs = {"refund": 2, "restock": 1}


@story()
async def cancelled_by_somebody(scene: Scene) -> None:
    """Groups with a record of their cancellation: one is compensating, one has ended."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"), undos=REFUND)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", name="charge")
    await scene.add("order-2", job("reserve", "inventory"))
    await scene.groups.cancel_group("order-1", by="Zoë <zoe@example.com>")
    await scene.groups.cancel_group("order-2")
    scene.expect("order-1", "FAILED", completed=1, cancelled=1, undone=1)
    scene.expect("order-2", "FAILED", cancelled=1)
    scene.runs = {"refund": 1}


@story()
async def cancel_interrupted(scene: Scene) -> None:
    """A cancel met a key of another type, which is gone by now: its group is still ACTIVE."""
    members = [job("charge"), job("reserve", "inventory")]
    await scene.add("order-1", *members, undos=REFUND)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", name="charge")
    strange = f"{scene.prefix}:payments:compensation:meta"
    await scene.redis.set(strange, "of somebody")
    with suppress(ResponseError):
        await scene.groups.cancel_group("order-1")
    await scene.redis.delete(strange)
    scene.expect("order-1", "FAILED", completed=1, cancelled=1, undone=1)
    scene.runs = {"refund": 1}


@story()
async def cancelled_with_many_members(scene: Scene) -> None:
    """One call cancelled as many members as it may; the group is on the wake-up list."""
    await scene.add("order-1", *(job(f"job-{n}") for n in range(203)))
    await scene.redis.xtrim(names.events_key(scene.prefix, "payments"), 0, approximate=False)
    await scene.groups.cancel_group("order-1")
    await scene.redis.xtrim(names.events_key(scene.prefix, "payments"), 3, approximate=False)
    scene.expect("order-1", "FAILED", cancelled=203)
    # A worker would fail a member that is not cancelled yet.
    scene.idle_queues = ["payments"]


@story()
async def worker_gone(scene: Scene) -> None:
    """The worker of an active member is gone, and the group was settled since then."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"), undos=BOTH)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", name="charge")
    worker = await StockClient.start("bullmq6", scene.url, scene.prefix, own=True)
    await worker.work("inventory", {"reserve": hangs()}, lockDuration=1000)
    await worker.heard("started", name="reserve")
    await worker.kill()
    await worker.end()
    lock = f"{names.job_key(scene.prefix, 'inventory', 'order-1-1')}:lock"

    async def is_unlocked() -> bool:
        return not await scene.redis.exists(lock)

    await eventually(is_unlocked)
    await scene.groups.cancel_group("order-1")
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=2)
    scene.runs = {"refund": 1, "restock": 1}


@story(*FLAVOURS)
async def run_again_and_given_up(scene: Scene) -> None:
    """A completed member ran again when its group was given up; its undo waits for its end."""
    await scene.add("order-1", job("charge"), job("refuse", "inventory"), undos=REFUND)
    await scene.work("payments", charge=returns({"id": "tx-1"}))
    await scene.client.heard("completed", name="charge")
    await scene.replace_client()
    await scene.client.manage("payments", "retry", "completed", job="order-1-0")
    await scene.work("payments", charge=hangs())
    await scene.client.heard("started", name="charge")
    await scene.work("inventory", refuse=NO)
    await scene.client.heard("failed", name="refuse")
    await scene.settle("order-1")
    scene.behaviour = {"charge": returns({"id": "tx-2"})}
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.expect_undo(
        "order-1",
        "payments:compensation:order-1-0-undo",
        undo_data(0, "charge", '{"id":"tx-2"}', ORDER),
        undo_opts(3, "exponential", 1000),
    )
    scene.runs = {"refund": 1}


@story(*NODE)
async def waiting_for_child_and_given_up(scene: Scene) -> None:
    """A member waited for a child of its own when its group was cancelled; it stays there."""
    undos = {"charge": undo("refund", when="Started")}
    await scene.add("order-1", job("charge"), job("mail", "mails"), undos=undos)
    await scene.work("payments", charge=waits_for_child("banks"))
    await scene.client.heard("waits", name="charge")
    await scene.groups.cancel_group("order-1")
    scene.expect("order-1", "FAILED", cancelled=2, undone=1)
    scene.runs = {"refund": 1}


# Ended groups.


@story(*FLAVOURS)
async def ended(scene: Scene) -> None:
    """A group in each way to end: completed, undone, nothing to undo, an undo failed."""
    await scene.add("order-1", job("charge"), job("reserve"), undos=BOTH)
    await scene.add("order-2", job("charge"), job("refuse"), undos=REFUND)
    await scene.add("order-3", job("refuse"), job("mail", "mails"))
    await scene.add("order-4", job("charge"), job("refuse"), undos={"charge": undo("give_up")})
    await scene.work("payments", charge=returns({"id": "tx-1"}), refuse=NO)
    await scene.work("payments:compensation", give_up=fails_for_good("no account"))
    await scene.client.heard("failed", id="order-4-1")
    for group_id in scene.added:
        await scene.settle_until(group_id, ended=True)
    scene.expect("order-1", "COMPLETED", completed=2)
    scene.expect("order-2", "FAILED", completed=1, failed=1, undone=1)
    scene.expect("order-3", "FAILED", failed=1, cancelled=1)
    scene.expect("order-4", "FAILED_COMPENSATION", completed=1, failed=1, undo_failed=1)


@story()
async def ended_with_retention(scene: Scene) -> None:
    """Rules of some members were applied, those of others are left for the next call."""
    members = [
        job("charge", removeOnComplete=True),
        job("reserve", "inventory", removeOnComplete={"count": 1}),
        job("reserve", "inventory", removeOnComplete={"count": 2}),
        job("reserve", "inventory", removeOnComplete={"count": 3}),
    ]
    await scene.add("order-1", *members)
    for queue in ("payments", "inventory"):
        await scene.work(queue)
    await scene.client.heard("completed", id="order-1-0")
    await scene.client.heard("completed", id="order-1-3")
    await scene.settle("order-1")
    scene.expect("order-1", "COMPLETED", completed=4)
    scene.expect_kept("order-1", 2, 3)


@story(*FLAVOURS)
async def undo_retried(scene: Scene) -> None:
    """A person retries the failed undo of an ended group; it waits."""
    await scene.add("order-1", job("charge"), job("refuse"), undos=REFUND)
    await scene.work("payments", refuse=NO)
    await scene.work("payments:compensation", refund=fails_for_good("no account"))
    await scene.client.heard("failed", name="refuse")
    await scene.settle_until("order-1", ended=True)
    await scene.replace_client()
    await scene.client.manage("payments:compensation", "retry", "failed", job="order-1-0-undo")
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.runs = {"refund": 1}


@story(number=2)
async def undos_resolved(scene: Scene) -> None:
    """People resolved failed undos: one group has ended, another retries its other undo."""
    members = [job("charge"), job("reserve", "inventory"), job("refuse")]
    for group_id in ("order-1", "order-2"):
        await scene.add(group_id, *members, undos=BOTH)
    for queue in ("inventory", "payments"):
        await scene.work(queue, refuse=NO)
    for queue in ("inventory", "payments"):
        await scene.work(f"{queue}:compensation", refund=NO, restock=NO)
    for group_id in ("order-1", "order-2"):
        await scene.settle_until(group_id, ended=True)
    await scene.replace_client()
    await scene.groups.resolve_undo("order-1", "charge", "refunded by hand", "ann")
    await scene.groups.retry_undos("order-1", ["reserve"], "bob")
    for name in ("charge", "reserve"):
        await scene.groups.resolve_undo("order-2", name, "undone by hand")
    scene.expect("order-1", "FAILED", completed=2, failed=1, undone=1)
    scene.expect("order-2", "FAILED", completed=2, failed=1)
    scene.runs = {"restock": 1}


@story(number=2)
async def undo_retried_by_request(scene: Scene) -> None:
    """A failed undo is retried by request; it waits."""
    await scene.add("order-1", job("charge"), job("refuse"), undos=REFUND)
    await scene.work("payments", refuse=NO)
    await scene.work("payments:compensation", refund=NO)
    await scene.settle_until("order-1", ended=True)
    await scene.replace_client()
    await scene.groups.retry_undos("order-1", by="ann")
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.runs = {"refund": 1}


@story()
async def answered(scene: Scene) -> None:
    """Somebody completed a member without a worker; the other one waits."""
    await scene.add("order-1", job("approve"), job("ship", "parcels"))
    await scene.groups.complete_job("order-1", "approve", {"approved": True}, by="ann")
    scene.expect("order-1", "COMPLETED", completed=2)
    scene.runs = {"ship": 1}


@story()
async def limited(scene: Scene) -> None:
    """A group has a deadline and a time to live, both of ten years."""
    scene.note("order-1", job("charge"))
    await scene.groups.add_group(
        "order", [job("charge")], group_id="order-1", ttl=MAX_SECONDS, deadline=MAX_SECONDS
    )
    scene.expect("order-1", "COMPLETED", completed=1)
    scene.runs = {"charge": 1}


@story(number=2)
async def announced(scene: Scene) -> None:
    """Groups with a job of onEnd: one waits, one has ended, and of one the job has not been added.

    The undo of the first has a named queue. The job of the last has an id that another job has.
    """
    at_end = [{"when": "Always", "queueName": "banks", "name": "tell", "data": {"team": "shop"}}]
    refund = {"charge": {**undo("refund"), "queueName": "refunds"}}
    stories = {"order-1": [job("charge"), job("reserve")]}
    stories |= {"order-2": [job("charge")], "order-3": [job("charge")]}
    for group_id, jobs in stories.items():
        undos = refund if group_id == "order-1" else None
        scene.note(group_id, *jobs, undos=undos)
        scene.added[group_id]["definition"]["on_end"] = at_end
        await scene.groups.add_group("order", jobs, undos, group_id, on_end=at_end)
    await scene.client.add("banks", "other", jobId="order-3-end-0-1")
    for group_id in ("order-2", "order-3"):
        await scene.groups.cancel_group(group_id)
        scene.expect(group_id, "FAILED", cancelled=1)
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.behaviour = {"reserve": NO}
    scene.more_queues = ["refunds"]
    scene.runs = {"charge": 1, "reserve": 1, "refund": 1}


# Groups of which some keys are gone.


@story()
async def removed(scene: Scene) -> None:
    """Ids that cannot be created: a group was removed, one never existed, one is half removed."""
    await scene.add("order-1", job("charge"))
    await scene.groups.cancel_group("order-1")
    await scene.groups.remove_group("order-1")
    assert not await scene.groups.store.tombstone("order-2")
    assert not await scene.groups.store.orphan("order-3")
    for group_id in ("order-1", "order-2", "order-3"):
        scene.note(group_id, job("charge"))
        scene.expect_gone(group_id)
        scene.expect_again(group_id, GroupRemovedError)
    await scene.add("order-4", *(job(f"job-{n}") for n in range(203)))
    await scene.groups.cancel_group("order-4")
    await scene.settle_until("order-4", ended=True)
    await scene.redis.xtrim(names.events_key(scene.prefix, "payments"), 3, approximate=False)
    assert await _REMOVE(
        scene.redis,
        parent=names.parent_key(scene.prefix, "order-4"),
        prefix=scene.prefix,
        gid="order-4",
        now=now_ms(),
        remembers=TOMBSTONE_MS,
    )
    scene.expect("order-4", "FAILED", cancelled=203)
    scene.expect_again("order-4", GroupRemovedError)


async def _delete_queue(scene: Scene, queue: str) -> None:
    """Delete all keys of a queue, as removeAllQueueData of BullMQ does."""
    async for key in scene.redis.scan_iter(f"{scene.prefix}:{queue}:*", count=1000):
        await scene.redis.delete(key)


@story()
async def hash_missing(scene: Scene) -> None:
    """Somebody deleted the owning queue: only ledgers are left, of a running and an ended group."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"), undos=BOTH)
    await scene.add("order-2", job("charge"), job("charge"))
    await scene.work("payments")
    await scene.client.heard("completed", id="order-1-0")
    await scene.client.heard("completed", id="order-2-1")
    await scene.settle("order-2")
    await scene.replace_client()
    await _delete_queue(scene, "payments")
    scene.expect("order-1", "FAILED_COMPENSATION", completed=1, cancelled=1, undo_failed=1)
    scene.expect_gone("order-2")
    for group_id in scene.added:
        scene.expect_again(group_id, RedisStateLostError)
    # A worker could run the other member before the group is restored.
    scene.idle_queues = ["inventory"]


@story()
async def hash_missing_after_cancel(scene: Scene) -> None:
    """The owning queue was deleted after a cancel; only the pseudo parent still knows of that."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"))
    await scene.work("payments")
    await scene.work("inventory", reserve=hangs())
    await scene.client.heard("completed", name="charge")
    await scene.client.heard("started", name="reserve")
    await scene.groups.cancel_group("order-1")
    await scene.client.release("reserve")
    await scene.client.heard("completed", name="reserve")
    await scene.replace_client()
    await _delete_queue(scene, "payments")
    scene.expect("order-1", "FAILED", completed=2)
    scene.expect_again("order-1", RedisStateLostError)


@story()
async def hash_restored(scene: Scene) -> None:
    """The hash of a group was deleted and restored, without the mappings; a member is active."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"), undos=BOTH)
    await scene.work("inventory", reserve=hangs())
    await scene.work("payments")
    await scene.client.heard("completed", name="charge")
    await scene.client.heard("started", name="reserve")
    await _delete_queue(scene, "payments")
    await scene.settle("order-1")
    scene.expect("order-1", "FAILED_COMPENSATION", completed=2, undo_failed=2)
    scene.expect_again("order-1", GroupExistsError)


@story()
async def parent_missing(scene: Scene) -> None:
    """Somebody removed the pseudo parent as a job, which also removes the members that wait."""
    await scene.add("order-1", job("charge"), job("reserve", "inventory"), undos=BOTH)
    await scene.work("payments")
    await scene.client.heard("completed", name="charge")
    await scene.client.manage(names.LEDGER_QUEUE, "remove", job="order-1")
    scene.expect("order-1", "FAILED", completed=1, failed=1, undone=1)
    scene.expect_again("order-1", GroupExistsError)
    scene.runs = {"refund": 1}


@story()
async def queue_obliterated(scene: Scene) -> None:
    """Somebody obliterated the owning queue of an ended group, which a driver then discards."""
    await scene.add("order-1", job("charge"), job("mail"))
    await scene.work("payments")
    await scene.client.heard("completed", name="mail")
    await scene.settle("order-1")
    await scene.replace_client()
    await scene.client.manage("payments", "obliterate", {"force": True})
    scene.expect_gone("order-1")
