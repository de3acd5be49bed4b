"""A Redis Cluster of masters with a replica each, on free ports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from redis import RedisError
from redis.crc import key_slot

from testbed.servers.certificates import Authority
from testbed.servers.processes import free_port
from testbed.servers.redis import HERE, RedisServer, url
from testbed.support.waiting import wait_for

MASTERS = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 2000
MIGRATE_TIMEOUT_MS = 5000


class ClusterNode(RedisServer):
    """A node; Redis stores what it knows about the others in nodes.conf in its folder."""

    def access(self, port: int) -> list[str]:
        lines = ["cluster-enabled yes", "cluster-allow-replica-migration no"]
        # By default it is the port plus 10000, which may not exist.
        lines += [f"cluster-port {free_port()}"]
        lines += ["tls-cluster yes"] if self.authority else []
        return [*super().access(port), *lines]

    @property
    def bus_port(self) -> int:
        return int(self.call("CONFIG", "GET", "cluster-port")["cluster-port"])

    @property
    def id(self) -> str:
        return str(self.call("CLUSTER", "MYID"))

    def members(self) -> list["Member"]:
        """Return all nodes as this one sees them."""
        return [Member.parse(line) for line in self.call("CLUSTER", "NODES").splitlines()]


@dataclass(frozen=True)
class Member:
    """A line of CLUSTER NODES."""

    id: str
    address: tuple[str, int]
    flags: frozenset[str]
    master: str
    epoch: int
    slots: tuple[range, ...]

    @classmethod
    def parse(cls, line: str) -> Self:
        name, address, flags, master, _, _, epoch, _, *slots = line.split()
        # A slot on its way is in brackets.
        ends = [part.split("-") for part in slots if not part.startswith("[")]
        ranges = tuple(range(int(end[0]), int(end[-1]) + 1) for end in ends)
        host, _, port = address.partition("@")[0].rpartition(":")
        return cls(name, (host, int(port)), frozenset(flags.split(",")), master, int(epoch), ranges)

    def owns(self, slot: int) -> bool:
        return "master" in self.flags and any(slot in each for each in self.slots)

    @property
    def role(self) -> tuple[str, str, tuple[range, ...], frozenset[str]]:
        """Return what all nodes must agree on."""
        return self.id, self.master, self.slots, self.flags - {"myself"}


class ClusterServers:
    """Three masters with a replica each; the slots are spread evenly."""

    def __init__(
        self,
        folder: Path,
        persistent: bool = False,
        *,
        version: str = "8.0",
        password: str = "",
        authority: Authority | None = None,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        lines: Sequence[str] = (),
    ) -> None:
        """Start all; the lines are added to the configuration of each."""
        folder.mkdir(exist_ok=True)
        self.nodes: list[ClusterNode] = []
        self._password, self._authority = password, authority
        try:
            for number in range(2 * MASTERS):
                node = ClusterNode(
                    folder / f"node-{number}",
                    persistent,
                    version=version,
                    password=password,
                    authority=authority,
                    lines=[*lines, f"cluster-node-timeout {node_timeout_ms}"],
                )
                self.nodes.append(node)
            self._form()
        except BaseException:
            self.stop()
            raise

    def _form(self) -> None:
        """Give each master its slots and a replica."""
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            if number < MASTERS:
                bounds = [SLOTS * each // MASTERS for each in (number, number + 1)]
                node.call("CLUSTER", "ADDSLOTSRANGE", bounds[0], bounds[1] - 1)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if node is not first:
                node.call("CLUSTER", "MEET", HERE, first.port, first.bus_port)
        wait_for(self._all_have_met)
        for master, replica in zip(self.nodes, self.nodes[MASTERS:], strict=False):
            replica.call("CLUSTER", "REPLICATE", master.id)
        self.wait_until_ready()

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        addresses = ",".join(node.address for node in self.nodes)
        return url(addresses, "redis+cluster", self._password, self._authority)

    def slot(self, key: str) -> int:
        """Return the slot of a key, or of a prefix with a hash tag."""
        return int(key_slot(key.encode()))

    @property
    def _answering(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.is_running and not node.is_frozen]

    def master(self, key: str) -> ClusterNode:
        """Return the master that owns the slot of a key."""
        return self._owner(self.slot(key))

    def _owner(self, slot: int) -> ClusterNode:
        """Return the node that claims a slot with the highest epoch."""
        claims: list[tuple[int, ClusterNode]] = []
        for node in self._answering:
            try:
                own = next(each for each in node.members() if "myself" in each.flags)
            except RedisError:
                continue
            if own.owns(slot):
                claims.append((own.epoch, node))
        if not claims:
            raise LookupError(f"no node owns slot {slot}")
        return max(claims, key=lambda claim: claim[0])[1]

    def wait_for_another_master(self, old: RedisServer, key: str) -> None:
        """Wait until another node than the old one is the master of a key."""

        def is_another() -> bool:
            try:
                return self.master(key) is not old
            except LookupError:
                return False

        wait_for(is_another)

    def start_again(self, node: RedisServer) -> None:
        """Start a node that was killed; it becomes a replica if another took its place."""
        node.start_again()

    def fail_over(self, key: str) -> None:
        """Make the replica of a key's master the master, without a failure."""
        old = self.master(key)
        replica = next(
            node
            for node in self.nodes
            if any("myself" in each.flags and each.master == old.id for each in node.members())
        )
        replica.call("CLUSTER", "FAILOVER")
        self.wait_for_another_master(old, key)

    def move_slot(self, slot: int, target: ClusterNode) -> None:
        """Move a slot with all its keys to another master."""
        for _ in self.moving(slot, target, batch=100):
            pass

    def moving(self, slot: int, target: ClusterNode, batch: int = 1) -> Iterator[str]:
        """Move a slot to another master, and yield keys that have moved, the last of each batch."""
        source = self._owner(slot)
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        access = ["AUTH", self._password] if self._password else []
        where = (HERE, target.port, "", 0, MIGRATE_TIMEOUT_MS)
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, batch):
            source.call("MIGRATE", *where, *access, "KEYS", *keys)
            yield keys[-1]
        # The target first: if the source were first, no node would own the slot for a moment.
        others = [each for each in self.nodes if each not in (source, target)]
        for node in (target, source, *others):
            if any("myself" in each.flags and "master" in each.flags for each in node.members()):
                node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def wait_until_ready(self) -> None:
        """Wait until all run and agree, and every replica copies its master."""
        wait_for(self._is_ready)

    def _all_have_met(self) -> bool:
        views = [node.members() for node in self.nodes]
        return all(
            len(view) == len(self.nodes) and not any("handshake" in each.flags for each in view)
            for view in views
        )

    def _is_ready(self) -> bool:
        try:
            states = [node.call("CLUSTER", "INFO") for node in self.nodes]
            copied = [node.call("INFO", "replication") for node in self.nodes]
            views = [frozenset(each.role for each in node.members()) for node in self.nodes]
        except RedisError:
            return False
        return (
            all("cluster_state:ok" in state for state in states)
            and all(each.get("master_link_status", "up") == "up" for each in copied)
            and sum(each["role"] == "master" for each in copied) == MASTERS
            and len(set(views)) == 1
            and not any("fail" in flag for role in views[0] for flag in role[3])
        )

    def stop(self) -> None:
        """End all; what they stored stays in the folder."""
        for node in self.nodes:
            node.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
