"""Connections that find the server which has the data, and leave it when it has them no longer."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import ResponseError

from jobgroup.store.credentials import Credentials, FileCredentials
from jobgroup.store.locators import Locator
from jobgroup.store.redis_url import Address
from jobgroup.store.tls import Certificates
from jobgroup.store.transience import (
    RejectedCredentialsError,
    code,
    lacks_right,
    leave_if_cancelled,
    missing_right,
)

FIXED = Locator()
# How long an open connection waits before it authenticates again with what was rejected.
REFRESH_SECONDS = 1.0

# A mixin of all three classes of redis-py.
if TYPE_CHECKING:
    _Base = Connection
else:
    _Base = object


class _Located(_Base):
    """A connection to the server that its locator names.

    After a failover, a host name may lead to the new primary, but only for a new connection.
    """

    def __init__(
        self,
        locator: Locator = FIXED,
        handshake_timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.socket_timeout: float | None
        self._locator = locator
        self._handshake_timeout = handshake_timeout
        self._moves = 0
        provider = kwargs.get("credential_provider")
        self._files = provider if isinstance(provider, FileCredentials) else None
        self._used: Credentials = ()
        self._rejected: Credentials = ()
        self._retry_at = 0.0

    async def connect_check_health(self, *args: Any, **kwargs: Any) -> None:
        if self.is_connected:
            return
        self._moves = self._locator.moves
        if address := await self._locator.locate():
            self.host, self.port = address
        usual = self.socket_timeout
        # A server that is frozen accepts connections.
        self.socket_timeout = self._handshake_timeout or usual
        try:
            await super().connect_check_health(*args, **kwargs)
        finally:
            self.socket_timeout = usual

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        if self._files:
            self._used = self._files.current()
        await super().on_connect_check_health(check_health)
        await self._locator.confirm(self)
        if self._locator.moves != self._moves and self._locator.latest != (self.host, self.port):
            raise exceptions.ConnectionError("the data moved while the connection was made")

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            reply = await super().read_response(*args, **kwargs)
        except ResponseError as error:
            reply = error
        except exceptions.TimeoutError:
            self._locator.doubt()
            raise
        except exceptions.AuthenticationError as error:
            if self._files is None:
                raise
            raise RejectedCredentialsError(self._files.rejected(error)) from None
        for each in reply if isinstance(reply, list) else [reply]:
            if isinstance(each, ResponseError) and code(each) in self._locator.leaves:
                await self.disconnect()
                what = str(each) if code(each) in str(each) else f"{code(each)} {each}"
                raise exceptions.ConnectionError(f"left {self._host_error()}: {what}")
        if isinstance(reply, exceptions.AskError):
            raise ResponseError("this is a node of a Redis Cluster: use a redis+cluster:// URL")
        if isinstance(reply, list):
            return [_explained(each) for each in reply]
        if isinstance(reply, ResponseError):
            raise _explained(reply)
        return reply

    async def refresh(self) -> None:
        """Authenticate again if the files changed; Redis keeps a connection whose AUTH failed."""
        if self._files is None or self._files.current() in (self._used, ()):
            return
        now = asyncio.get_running_loop().time()
        wanted = self._files.current()
        if wanted == self._rejected and now < self._retry_at:
            return
        await self.send_command("AUTH", *wanted)
        try:
            await super().read_response(disconnect_on_error=False)
        except exceptions.AuthenticationError as error:
            self._files.rejected(error)
            self._rejected, self._retry_at = wanted, now + REFRESH_SECONDS
        except BaseException:
            await self.disconnect(nowait=True)
            raise
        else:
            self._used = wanted

    def leave_unless(self, address: Address | None) -> None:
        """Close the connection, even in the middle of a call, if it goes to another server."""
        if self._writer and (self.host, self.port) != address:
            self._writer.transport.abort()


def _explained(reply: Any) -> Any:
    """Return a reply, or in place of an error about a missing right one that says where to look."""
    denied = isinstance(reply, ResponseError) and lacks_right(reply)
    return missing_right(reply) if denied else reply


class TcpConnection(_Located, Connection):
    """A connection without TLS."""


class TlsConnection(_Located, SSLConnection):
    """A connection with TLS.

    Connecting may be cancelled at any time, and the server may be frozen: neither must leave a
    socket open.
    """

    def __init__(self, certificates: Certificates, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._certificates = certificates

    def _connection_arguments(self) -> Mapping[str, Any]:
        return Connection._connection_arguments(self)

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            await super()._connect()  # type: ignore[no-untyped-call]
            writer = cast("asyncio.StreamWriter", self._writer)
            try:
                # With open_connection(ssl=...), asyncio loses a socket if it is cancelled after the
                # connection was made and before the handshake has begun.
                await writer.start_tls(self._certificates.get(), server_hostname=self.host)
            except BaseException:
                writer.close()
                self._reader = self._writer = None
                raise

    async def disconnect(self, *args: Any, **kwargs: Any) -> None:
        if self._writer:
            # Otherwise asyncio waits for the server to end TLS as well, for up to 30 seconds.
            self._writer.transport.abort()
        await super().disconnect(*args, **kwargs)


class SocketConnection(_Located, UnixDomainSocketConnection):
    """A connection to a socket."""


class Pool(BlockingConnectionPool):
    """A bounded pool. If all connections are in use, a call waits for one.

    While it is in use, it listens to what its locator watches, and closes connections to a server
    that the data has left.
    """

    def __init__(self, locator: Locator, **kwargs: Any) -> None:
        super().__init__(locator=locator, **kwargs)
        self.locator = locator
        self._listeners: list[asyncio.Task[None]] | None = None

    async def get_connection(self, *args: Any, **kwargs: Any) -> AbstractConnection:
        if self._listeners is None:
            watches = self.locator.watches()
            self._listeners = [asyncio.create_task(self._listen(watch)) for watch in watches]
        connection: AbstractConnection = await super().get_connection(*args, **kwargs)  # type: ignore[no-untyped-call]
        return connection

    async def ensure_connection(self, connection: Any) -> None:
        if connection.is_connected and self.locator.is_elsewhere(connection):
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)
        await connection.refresh()

    async def _listen(self, watch: AsyncGenerator[Address | None, None]) -> None:
        async with contextlib.aclosing(watch):
            async for address in watch:
                self.locator.move(address)
                found: list[Any] = [*self._available_connections, *self._in_use_connections]
                for each in found:
                    each.leave_unless(address)
                leave_if_cancelled()

    async def aclose(self) -> None:
        """Stop listening, and close all connections."""
        listeners, self._listeners = self._listeners or [], []
        for task in listeners:
            task.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
        await super().aclose()
