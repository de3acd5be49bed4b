"""Whether the user of Redis may run all commands of the scripts.

Redis does not roll back: a script that a missing right interrupts leaves half of its writes. So the
rights are checked before the first script that writes. Redis 6.2 cannot tell.
"""

import re
from functools import cache
from pathlib import Path

from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.scripts import FOLDER, load
from jobgroup.store.transience import MissingRightError

_CALL = re.compile(r'(?:\bp?call|\bcall_in_batches)\("([A-Z]+)"')


class Rights:
    """The rights of the user on the keys of one prefix."""

    def __init__(
        self, redis: Redis, prefix: str, folder: Path = FOLDER, observer: Observer = SILENT
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._commands = " ".join(sorted(scripted(folder)))
        self._check = load("check_rights", folder, observer)
        self._passed = False

    async def check(self) -> None:
        """Raise an error that names the commands which the user may not run."""
        key = names.incarnation_key(self._prefix)
        refused = await self._check(self._redis, key=key, commands=self._commands)
        if refused:
            raise MissingRightError(
                f"the Redis user lacks a right: it may not run {', '.join(refused)} on keys that"
                f" begin with {self._prefix}: (docs/redis-in-production.md lists all rights)"
            )
        self._passed = True

    async def check_once(self) -> None:
        """Check the rights, until they were sufficient once."""
        if not self._passed:
            await self.check()


@cache
def scripted(folder: Path = FOLDER) -> frozenset[str]:
    """Return the commands that the scripts call."""
    texts = (path.read_text() for path in folder.rglob("*.lua"))
    return frozenset(found for text in texts for found in _CALL.findall(text))
