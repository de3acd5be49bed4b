"""A Redis master with replicas behind Sentinel, on free ports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from redis import RedisError

from testbed.servers.certificates import Authority
from testbed.servers.redis import HERE, RedisServer, url
from testbed.support.waiting import wait_for

SERVICE = "shop"
REPLICAS = 2
SENTINELS = 3
QUORUM = 2
DOWN_AFTER_MS = 2000
# After it, a failover that did not finish is tried again; the default is 3 minutes.
FAILOVER_TIMEOUT_MS = 6000


class Sentinel(RedisServer):
    """A Sentinel process; Sentinel stores what it learns in its configuration."""

    flags = ("--sentinel",)

    def configuration(self, port: int) -> list[str]:
        lines = [f"bind {HERE}", f'dir "{self.folder}"', *self.access(port)]
        if self.password:
            lines += [f'requirepass "{self.password}"', f'sentinel sentinel-pass "{self.password}"']
        return [*lines, *self.lines]


class SentinelServers:
    """A master with two replicas, and three sentinels that watch them."""

    def __init__(
        self,
        folder: Path,
        persistent: bool = False,
        *,
        version: str = "8.0",
        password: str = "",
        sentinel_password: str = "",
        authority: Authority | None = None,
        down_after_ms: int = DOWN_AFTER_MS,
        lines: Sequence[str] = (),
        sentinel_lines: Sequence[str] = (),
    ) -> None:
        """Start all; the lines are added to the configuration of each server, or sentinel."""
        folder.mkdir(exist_ok=True)
        self.nodes: list[RedisServer] = []
        self.sentinels: list[Sentinel] = []
        self._password, self._authority = password, authority
        common: dict[str, Any] = {"version": version, "authority": authority}
        try:
            for number in range(1 + REPLICAS):
                primary = [f"replicaof {HERE} {self.nodes[0].port}"] if self.nodes else []
                where = folder / f"redis-{number}"
                added = [*lines, *primary]
                node = RedisServer(where, persistent, password=password, lines=added, **common)
                self.nodes.append(node)
            monitor = [
                f"sentinel monitor {SERVICE} {HERE} {self.nodes[0].port} {QUORUM}",
                f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
                f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}",
                f"sentinel parallel-syncs {SERVICE} {REPLICAS}",
                *([f'sentinel auth-pass {SERVICE} "{password}"'] if password else []),
            ]
            for number in range(SENTINELS):
                where = folder / f"sentinel-{number}"
                added = [*monitor, *sentinel_lines]
                sentinel = Sentinel(where, password=sentinel_password, lines=added, **common)
                self.sentinels.append(sentinel)
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        addresses = ",".join(sentinel.address for sentinel in self.sentinels)
        made = url(f"{addresses}/{SERVICE}/0", "redis+sentinel", self._password, self._authority)
        if not (password := self.sentinels[0].password):
            return made
        return f"{made}{'&' if '?' in made else '?'}sentinel_password={quote(password, safe='')}"

    def master(self, key: str = "") -> RedisServer:
        """Return the master that the first running sentinel names; it has every key."""
        sentinel = next(sentinel for sentinel in self.sentinels if sentinel.is_running)
        _, port = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(node for node in self.nodes if node.port == int(port))

    def fail_over(self, key: str = "") -> None:
        """Start a failover without a failure, and wait until the sentinel names another master."""
        old = self.master()
        self.sentinels[0].call("SENTINEL", "FAILOVER", SERVICE)
        self.wait_for_another_master(old)

    def wait_for_another_master(self, old: RedisServer, key: str = "") -> None:
        """Wait until the sentinels name another master than the old one."""
        wait_for(lambda: self.master() is not old)

    def start_again(self, node: RedisServer) -> None:
        """Start a server that was killed, as a replica if another is the master.

        Otherwise an old master would accept writes until Sentinel demotes it, after 10 seconds.
        """
        if (master := self.master()) is not node:
            node.append(f"replicaof {HERE} {master.port}")
        node.start_again()

    def wait_until_ready(self) -> None:
        """Wait until all run and agree, and every replica copies the master."""
        wait_for(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            master = self.master()
            copied = master.call("INFO", "replication")
            links = [copied.get(f"slave{number}", {}) for number in range(REPLICAS)]
            views = [each.call("SENTINEL", "MASTER", SERVICE) for each in self.sentinels]
            for each in self.sentinels:
                each.call("SENTINEL", "CKQUORUM", SERVICE)
        except RedisError:
            return False
        agreed = {
            "port": str(master.port),
            "flags": "master",
            "num-slaves": str(REPLICAS),
            "num-other-sentinels": str(SENTINELS - 1),
        }
        return (
            copied["role"] == "master"
            and all(link.get("state") == "online" for link in links)
            and all(agreed.items() <= view.items() for view in views)
        )

    def stop(self) -> None:
        """End all; what they stored stays in the folder."""
        for process in (*self.sentinels, *self.nodes):
            process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
