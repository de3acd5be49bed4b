"""Child processes that never outlive the process that started them."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.errors import Unavailable

READY_SECONDS = 60
STOP_SECONDS = 10


def leashed(command: Sequence[str], death_signal: str = "KILL") -> list[str]:
    """Let the kernel signal this command when the thread that starts it dies, even by kill -9.

    The signal follows the starting *thread*, so start servers from the main thread.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", death_signal, *command] if setpriv else list(command)


def free_port() -> int:
    """Ask the kernel for a port nobody listens on now; who binds it must still expect a race."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_running(pid: int) -> bool:
    """Say whether a process exists and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Server:
    """A leashed server with its log in a file, known to be ready before it is used."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready: Callable[[int], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command and wait until `ready`, asked with the process id, says yes."""
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                leashed(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                # Ctrl-C is for the owner alone, who ends what it started in good order.
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
            # Asked in this order, for on a port lost to a race somebody else may have answered.
            if (code := self._process.poll()) is not None:
                raise Unavailable(f"{self.name} ended with code {code}: {self.last_words()}")
            if answers:
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{self.name} was not ready after {READY_SECONDS} s: {self.last_words()}"
                )
            time.sleep(0.05)

    def last_words(self, lines: int = 5) -> str:
        """Return the end of the log: what a person would look at first."""
        text = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join([f"(from {self.log})", *text[-lines:]])

    @property
    def code(self) -> int | None:
        """Return the code it ended with, or nothing while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = READY_SECONDS) -> int:
        """Wait until it ends by itself, and return its code."""
        return self._process.wait(seconds)

    def stop(self) -> None:
        """End the server politely, then not."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the server as a crash would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def on_free_port(start: Callable[[int], Server]) -> tuple[Server, int]:
    """Start a server on a free port; where somebody else took the port first, on another."""
    for _ in range(5):
        port = free_port()
        try:
            return start(port), port
        except Unavailable as refusal:
            if "address already in use" not in str(refusal).lower():
                raise
    raise Unavailable("Five free ports in a row were taken before a server could listen on them.")
