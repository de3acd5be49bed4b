"""Runs the commands of a documentation page, as a reader types them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from testbed import ROOT
from testbed.build.toolchain import node
from testbed.demo.parts import Parts
from testbed.servers.processes import Server
from testbed.support.pages import Command, Page

# Texts that differ from run to run: times, ages, ids and ports.
_CHANGING = "|".join(
    (
        r"\d{4}-\d\d-\d\dT[\d:.]+Z",
        r"\d{4}-\d\d-\d\d [\d:,]+",
        r"\b(\d+[smhd]){1,2}\b",
        r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        r"\b[a-h][0-9A-Za-z]{21}\b",
        r"(?<=127\.0\.0\.1:)\d+",
    )
)
_NUMBER = r"\b\d+\b"
# States that may be over before they are printed.
_PASSING = re.compile(r"\b(ACTIVE|COMPENSATING)\b")


def on(parts: Parts) -> dict[str, str]:
    """Return the environment of commands that use the parts of the demo."""
    path = [str(parts.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        "KUBECONFIG": str(parts.api.admin),
        "REDIS_URL": parts.redis.url,
        "PYTHONPATH": str(ROOT / "operator"),
        "PYTHONUNBUFFERED": "1",
        # The modules that a worker imports are beside the link to it, not beside the worker.
        "NODE_OPTIONS": "--preserve-symlinks-main",
        "PATH": os.pathsep.join(path),
    }


class Reader:
    """Runs commands in a folder with links to the files of `home`, and with the page's files."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        page: Page,
        home: Path = ROOT,
        any_number: bool = False,
    ) -> None:
        self._changing = f"{_CHANGING}|{_NUMBER}" if any_number else _CHANGING
        self.folder = folder / page.path.replace("/", "-")
        self.folder.mkdir()
        for entry in home.iterdir():
            (self.folder / entry.name).symlink_to(entry)
        for block in page.blocks:
            if block.file:
                (self.folder / block.file).write_text(block.text)
        self._env = {**os.environ, **env}
        self._running: list[Server] = []
        self._code = 0

    def follow(self, command: Command) -> None:
        """Run a command, and compare what it prints with the page."""
        printed = self.type(command.text)
        if command.printed:
            wanted = self._steady(command.printed)
            assert self._steady(printed.splitlines()) == wanted, f"{command.text}: {printed}"
        else:
            # redis-cli ends with code 0 even if Redis returns an error.
            refused = self._code != 0 or printed.startswith("ERR ")
            assert not refused, f"{command.text}: {printed}"

    def type(self, command: str) -> str:
        """Run a command to its end, with the exit code of the last one in `$?`."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._code})\n{command}"],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self._code = done.returncode
        return done.stdout

    def leave_running(self, command: Command) -> None:
        """Start a command that does not end by itself; wait until it prints what the page shows."""
        wanted = self._steady(command.printed)

        def has_begun(log: Path) -> bool:
            said = self._steady(log.read_text().splitlines())
            return all(line in said for line in wanted) if wanted else bool(said)

        self._start(["bash", "-c", f"cd {self.folder}; exec env {command.text}"], has_begun)

    def _steady(self, lines: Iterable[str]) -> list[str]:
        """Return the lines without the texts that differ from run to run."""
        lasting = [line for line in lines if not _PASSING.search(line)]
        return [" ".join(re.sub(self._changing, "*", line).split()) for line in lasting]

    def work(self, file: str) -> None:
        """Start a worker of the page; there is no need to wait, because its jobs do."""
        program = str(node()) if file.endswith(".mjs") else sys.executable
        self._start([program, str(self.folder / file)], lambda _: True)

    def _start(self, command: list[str], has_begun: Callable[[Path], bool]) -> None:
        log = self.folder / f"running-{len(self._running)}.log"
        self._running.append(Server(command[-1], command, log, lambda _: has_begun(log), self._env))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ended = [server.log_tail() for server in self._running if server.code is not None]
        for server in self._running:
            server.kill()
        assert not ended, ended
