"""kubectl in one namespace of a cluster."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

# How long a slow and busy machine may take for what must come true.
PATIENCE = "--timeout=180s"


@dataclass(frozen=True)
class Kubectl:
    """Each call is a command that a person could type."""

    program: str
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def attempt(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it, and let it fail."""
        command = [self.program, "--namespace", self.namespace, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def elsewhere(self, namespace: str) -> Self:
        """Give the same in another namespace."""
        return replace(self, namespace=namespace)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply manifests."""
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self("apply", "--filename=-", stdin=manifest)

    def json(self, *arguments: str) -> Any:
        """Get something whole."""
        return json.loads(self("get", *arguments, "--output=json"))

    def wait(self, what: str, path: str, value: str | int) -> None:
        """Wait until a field of an object has a value."""
        self("wait", what, f"--for=jsonpath={{{path}}}={value}", PATIENCE)

    def wait_gone(self, what: str, *more: str) -> None:
        """Wait until something is there no more."""
        self("wait", "--for=delete", what, *more, PATIENCE)
