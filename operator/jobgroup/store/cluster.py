"""The node of a Redis Cluster that owns the slot of the prefix.

While the slot moves, its owner refuses scripts. If the owner fails meanwhile, a replica takes over
that does not know of the move (up to Redis 8.0): it would run scripts on the keys that had not
moved yet. But the other node still knows, so nobody connects while a node imports the slot.
"""

import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from redis import exceptions

from jobgroup.store.locators import Asking, Opener, ask_all, failure
from jobgroup.store.redis_url import Address, name_of

# Nodes that are asked at the same time.
MAX_ASKED = 64

# The owner of the slot as a node knows it, and the node itself if it imports the slot.
View = tuple[Address | None, Address | None]


class ClusterSlot(Asking):
    """The locator of the node that owns a slot."""

    # Workers of a queue may be connected to any node.
    lists_all_clients = False

    def __init__(self, hosts: Sequence[Address], slot: int, open_connection: Opener) -> None:
        super().__init__(open_connection)
        self._seeds = hosts
        self._known: frozenset[Address] = frozenset()
        self._slot = slot

    async def _find(self) -> Address:
        asked = {*self._seeds, *self._known}
        answers, errors = await self._read_all(asked)
        if self._known - asked:
            answers, errors = await self._read_all({*asked, *self._known})
        if importing := [node for _, node in answers if node]:
            raise exceptions.ConnectionError(
                f"{name_of(importing[0])} imports the slot {self._slot}, which has all keys of the"
                " prefix; if nobody moves it, run `redis-cli --cluster fix`"
            )
        owners = Counter(owner for owner, _ in answers if owner)
        if owners:
            return owners.most_common(1)[0][0]
        if answers:
            raise exceptions.ConnectionError(f"no node of the Redis Cluster has slot {self._slot}")
        raise failure("no node of the Redis Cluster answers", errors)

    async def _read_all(self, nodes: Collection[Address]) -> tuple[list[View], list[Exception]]:
        asked = random.sample(list(nodes), min(MAX_ASKED, len(nodes)))
        return await ask_all([self._read(node) for node in asked])

    async def _read(self, node: Address) -> View:
        """Return the owner of the slot as a node knows it, and the node if it imports the slot."""
        ranges, members = await self._ask(node, ("CLUSTER", "SLOTS"), ("CLUSTER", "NODES"))
        known, owner = set(filter(None, map(_empty_master, members.splitlines()))), None
        for first, last, *servers in ranges:
            addresses = [_endpoint(server, node) for server in servers]
            known.update(addresses)
            if first <= self._slot <= last:
                owner = addresses[0]
        self._known = frozenset(known) or self._known
        return owner, node if f" [{self._slot}-<-" in members else None


def _endpoint(server: Sequence[Any], asked: Address) -> Address:
    """Return the address of a server; a node that does not know its own is where it was asked."""
    host, port, *_ = server
    return (asked[0] if host in (None, "", "?") else host), port


def _empty_master(line: str) -> Address | None:
    """Return the address in a line of CLUSTER NODES if it is that of a master without slots.

    CLUSTER SLOTS omits it, but it may import its first slot.
    """
    _, address, flags, _, _, _, _, link, *slots = line.split()
    place, _, more = address.partition("@")
    host, _, port = place.rpartition(":")
    _, _, name = more.partition(",")
    is_other = flags == "master" and link == "connected" and not slots
    return (name or host, int(port)) if is_other else None
