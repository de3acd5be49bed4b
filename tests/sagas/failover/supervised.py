"""A stock worker in a process of its own, which is restarted when it has stopped.

A liveness probe does the same in a cluster: after a failover, BullMQ for Node may take no more
jobs. docs/redis-in-production.md says when.
"""

import time
from collections.abc import Mapping
from typing import Any, Self

from testbed.servers.stock import Behaviour, Report, StockClient

# Then a worker has to be restarted.
GAVE_UP = "Connection is closed."
SILENT_SECONDS = 20
# An active job keeps its lock for 30 seconds, as by default, and workers look more often for jobs
# that lost it.
SETTINGS: dict[str, Any] = {"concurrency": 4, "stalledInterval": 5000}


class SupervisedWorker:
    """A worker of some queues, with the reports of all its processes."""

    def __init__(
        self, flavour: str, url: str, prefix: str, queues: Mapping[str, Mapping[str, Behaviour]]
    ) -> None:
        self.flavour = flavour
        self.restarts = 0
        # Names and ids of jobs that were active when their process was replaced: they run again.
        self.abandoned: set[tuple[str, str]] = set()
        self._url = url
        self._prefix = prefix
        self._queues = queues
        self._earlier: list[Report] = []

    @property
    def reports(self) -> list[Report]:
        """Return the reports of all processes."""
        return [*self._earlier, *self._client.reports]

    @property
    def has_given_up(self) -> bool:
        """Return whether the worker has reported that it does not connect again."""
        return self._client.count("error", reason=GAVE_UP) > 0

    @property
    def is_silent(self) -> bool:
        """Return whether the worker has reported nothing lately."""
        reports = self._client.reports
        last = max(self._started_at, reports[-1]["at"] if reports else 0)
        return time.monotonic() - last > SILENT_SECONDS

    async def restart(self) -> None:
        """Replace the process."""
        await self._client.end()
        at_work = set()
        for report in self._client.reports:
            if report["event"] == "started":
                at_work.add((report["name"], report["id"]))
            elif report["event"] in ("completed", "failed"):
                at_work.discard((report["name"], report["id"]))
        self.abandoned |= at_work
        self._earlier += self._client.reports
        self.restarts += 1
        await self._start()

    async def _start(self) -> None:
        self._client = await StockClient.start(self.flavour, self._url, self._prefix, own=True)
        for queue, behaviour in self._queues.items():
            await self._client.work(queue, behaviour, **SETTINGS)
        self._started_at = time.monotonic()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.end()
