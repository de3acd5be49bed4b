"""The node of a Redis Cluster that owns the slot of the prefix."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from redis import exceptions

from jobgroup.store.locators import Asking, Opener, ask_all, failure
from jobgroup.store.redis_url import Address

# Nodes that are asked at the same time.
MAX_ASKED = 8


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
        nodes = list({*self._seeds, *self._known})
        asked = random.sample(nodes, min(MAX_ASKED, len(nodes)))
        answers, errors = await ask_all([self._read(node) for node in asked])
        owners = Counter(owner for owner in answers if owner)
        if owners:
            return owners.most_common(1)[0][0]
        if answers:
            raise exceptions.ConnectionError(f"no node of the Redis Cluster has slot {self._slot}")
        raise failure("no node of the Redis Cluster answers", errors)

    async def _read(self, node: Address) -> Address | None:
        """Return the owner of the slot as a node knows it."""
        (ranges,) = await self._ask(node, ("CLUSTER", "SLOTS"))
        known, owner = set(), None
        for first, last, *servers in ranges:
            addresses = [_endpoint(server, node) for server in servers]
            known.update(addresses)
            if first <= self._slot <= last:
                owner = addresses[0]
        self._known = frozenset(known) or self._known
        return owner


def _endpoint(server: Sequence[Any], asked: Address) -> Address:
    """Return the address of a server; a node that does not know its own is where it was asked."""
    host, port, *_ = server
    return (asked[0] if host in (None, "", "?") else host), port
