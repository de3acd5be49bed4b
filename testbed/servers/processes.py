"""Child processes, which end with the process that started them."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from testbed.support.errors import Unavailable

READY_SECONDS = 60
STOP_SECONDS = 10


def leashed(command: Sequence[str], death_signal: str = "KILL") -> list[str]:
    """Return a command that the kernel signals when the thread that started it ends.

    This works even if this process is killed. The signal is sent when the *thread* ends, so start
    servers from the main thread.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", death_signal, *command] if setpriv else list(command)


def free_port() -> int:
    """Return a port that is free now; another process may bind it before the caller does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Server:
    """A child process with its log in a file; once constructed, it is ready."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready: Callable[[int], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command, and wait until `ready` returns true for the process id."""
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                leashed(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                # Ctrl-C reaches the owner alone, which ends its servers in order.
                start_new_session=True,
            )
        try:
            self._wait_until(ready)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait_until(self, ready: Callable[[int], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            answers = ready(self.pid)
            # In this order: on a port lost to a race, another server may have answered.
            if (code := self._process.poll()) is not None:
                raise Unavailable(f"{self.name} ended with code {code}: {self.log_tail()}")
            if answers:
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{self.name} was not ready after {READY_SECONDS} s: {self.log_tail()}"
                )
            time.sleep(0.05)

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of the log."""
        text = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join([f"(from {self.log})", *text[-lines:]])

    @property
    def code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = READY_SECONDS) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return self._process.wait(seconds)

    def stop(self) -> None:
        """Terminate the server; kill it if it does not end in time."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def on_free_port(start: Callable[[int], Server]) -> tuple[Server, int]:
    """Start a server on a free port; if another process takes the port first, on another one."""
    for _ in range(5):
        port = free_port()
        try:
            return start(port), port
        except Unavailable as refusal:
            if "address already in use" not in str(refusal).lower():
                raise
    raise Unavailable(
        "Other processes took five free ports before a server could listen on them; try again."
    )
