"""Checks every two seconds whether Redis works, and how many groups it has."""

import asyncio
import logging
from contextlib import suppress

from jobgroup.model.snapshot import Totals
from jobgroup.store.connection import RedisError, leave_if_cancelled
from jobgroup.store.store import Store

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 2


class RedisProbe:
    """The last answers of one Redis; `error` is empty while it works."""

    def __init__(self, store: Store, location: str) -> None:
        self.is_up = False
        self.error = ""
        # Only while Redis answers.
        self.totals: Totals | None = None
        self._store = store
        self._location = location

    def check(self) -> str:
        """Return why the operator is not ready, or nothing."""
        return self.error

    async def run(self) -> None:
        """Query Redis, forever."""
        while True:
            leave_if_cancelled()
            await self._ask()
            self.totals = await self._count_groups()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _ask(self) -> None:
        """Call a script that may write: a Redis that is full or a replica still answers a PING."""
        try:
            await self._store.incarnation()
            await self._store.rights.check()
            if self.error:
                logger.info("Redis at %s works again", self._location)
            self.error = ""
        except Exception as error:
            message = f"Redis at {self._location} failed: {error}"
            if not self.error:
                logger.error("%s", message)
            self.error = message
        self.is_up = not self.error

    async def _count_groups(self) -> Totals | None:
        with suppress(RedisError):  # the next round reports it
            if self.is_up:
                return await self._store.totals()
        return None
