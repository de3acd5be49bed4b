"""kubectl in one namespace of a cluster, for its printed text and for what only it does.

Tests act on objects with testbed/support/user.py.
"""

import subprocess
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Kubectl:
    """Each call is a command as a person types it."""

    program: str
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def attempt(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        command = [self.program, "--namespace", self.namespace, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def within(self, namespace: str) -> Self:
        """Return the same kubectl in another namespace."""
        return replace(self, namespace=namespace)
