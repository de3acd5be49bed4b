"""The master of a service, as sentinels know it, and their announcements of another one.

A failover without a failure promotes a replica first, and demotes the old master up to ten seconds
later. Until then, the old one accepts writes, which are lost. So clients listen to all sentinels,
leave the old master before the promotion, and wait for the new one.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from redis import exceptions
from redis.exceptions import RedisError

from jobgroup.model.clock import FAILOVER_SECONDS, backoff
from jobgroup.store.locators import Asking, Opener, are_unreachable, ask_all, failure
from jobgroup.store.redis_url import Address, name_of
from jobgroup.store.transience import leave_if_cancelled

logger = logging.getLogger(__name__)

# A sentinel from which nothing came for this time is asked whether it still works.
SILENCE_SECONDS = 5.0
# The leader of a failover announces the first a tenth of a second before it promotes a replica, and
# the second after that. Every sentinel announces the third when it knows the new master.
_CHANNELS = ("+failover-state-send-slaveof-noone", "+promoted-slave", "+switch-master")


class Sentinels(Asking):
    """The locator of the master of a service."""

    def __init__(self, hosts: Sequence[Address], service: str, open_connection: Opener) -> None:
        super().__init__(open_connection)
        self._hosts = hosts
        self._service = service
        # The last master that said so itself, unless the sentinels announced another one since.
        self._confirmed: Address | None = None

    async def _find(self) -> Address:
        answers, errors = await ask_all([self._read(sentinel) for sentinel in self._hosts])
        known = [answer for answer in answers if answer]
        if known:
            # Of the answers with the highest epoch, that of the sentinel which leads a failover.
            _, address = max(known, key=lambda answer: (answer[0], answer[1] is None))
            if address:
                return address
            raise exceptions.ConnectionError(f"the sentinels replace the master of {self._service}")
        if answers:
            raise exceptions.ConnectionError(
                f"the sentinels consider the master of {self._service} to be down"
            )
        if self._confirmed and are_unreachable(errors):
            return self._confirmed
        raise failure(f"no sentinel knows the master of {self._service}", errors)

    async def _read(self, sentinel: Address) -> tuple[int, Address | None] | None:
        """Return the epoch and the address of the master; None if it is down.

        The address is None if the sentinel is replacing the master.
        """
        row, current = await self._ask(
            sentinel,
            ("SENTINEL", "MASTER", self._service),
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service),
        )
        about = dict(zip(row[::2], row[1::2], strict=True))
        flags, epoch = set(about["flags"].split(",")), int(about["config-epoch"])
        # After a promotion, the second names the new master already; the flags are of the old one.
        if [about["ip"], about["port"]] == current:
            if "failover_in_progress" in flags:
                return epoch, None
            if flags & {"s_down", "o_down"}:
                return None
        return (epoch, (current[0], int(current[1]))) if current else None

    def move(self, address: Address | None) -> None:
        super().move(address)
        if address != self._confirmed:
            self._confirmed = None

    async def confirm(self, connection: Any) -> None:
        await connection.send_command("ROLE", check_health=False)
        try:
            role, *_ = await connection.read_response()
        except exceptions.NoPermissionError:
            return
        if role != "master":
            raise exceptions.ConnectionError(f"the master of {self._service} is not promoted yet")
        self._confirmed = (connection.host, connection.port)

    def watches(self) -> Sequence[AsyncGenerator[Address | None, None]]:
        return [self._watch(sentinel) for sentinel in self._hosts]

    async def _watch(self, sentinel: Address) -> AsyncGenerator[Address | None, None]:
        """Yield where the master is when a sentinel announces that; None if it is unknown."""
        failures = 0
        while True:
            leave_if_cancelled()
            connection = self._open(sentinel)
            try:
                await connection.connect()  # type: ignore[no-untyped-call]
                await connection.send_command("SUBSCRIBE", *_CHANNELS)
                # It may have announced a failover while nobody listened.
                if address := await self._try_to_locate():
                    yield address
                while True:
                    if await self._is_announced(connection):
                        yield await self._try_to_locate()
                    failures = 0
            except Exception as error:  # nobody awaits this task; the sentinel may answer anything
                failures += 1
                if failures == 1:
                    where = name_of(sentinel)
                    logger.warning("cannot listen to the sentinel %s, retrying: %s", where, error)
            finally:
                await connection.disconnect(nowait=True)
            await asyncio.sleep(backoff(failures, FAILOVER_SECONDS))

    async def _is_announced(self, connection: Any) -> bool:
        """Return whether the next message of a sentinel is about the service."""
        leave_if_cancelled()
        reply = await connection.read_response(timeout=SILENCE_SECONDS)
        if reply is None:
            await connection.send_command("PING")
            reply = await connection.read_response()
        return reply[0] == "message" and self._service in str(reply[2]).split(" ")

    async def _try_to_locate(self) -> Address | None:
        with contextlib.suppress(RedisError):
            return await self.locate()
        return None
