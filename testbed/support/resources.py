"""JobGroups on a real API server: manifests in one line, and a stage to apply and watch them on."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.apiserver import ApiServer, KubectlError
from testbed.stock import PATIENCE_SECONDS
from testbed.waiting import wait_for

# Where objects of a kind are, by what kubectl calls it.
FOLDERS = {
    "jobgroup": "/apis/jobgroups.dev/v1alpha1/namespaces/{}/jobgroups",
    "workerpool": "/apis/jobgroups.dev/v1alpha1/namespaces/{}/workerpools",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "statefulset": "/apis/apps/v1/namespaces/{}/statefulsets",
    "event": "/api/v1/namespaces/{}/events",
}
CRDS = Path(__file__).resolve().parents[1] / "deploy" / "crds"


def install_crds(api: ApiServer) -> None:
    """Install what deploy/crds/ has, and wait until it is served."""
    api.kubectl("apply", "-f", str(CRDS))
    # Not `kubectl wait`: it takes a definition that has no conditions yet for a broken one. And
    # Established says only that the names are accepted; they are served a moment later.
    wait_for(lambda: is_served(api))


def is_served(api: ApiServer) -> bool:
    """Say whether the API server knows our kinds by now."""
    try:
        api.kubectl("get", "jobgroups,workerpools")
    except KubectlError:
        return False
    return True


def manifest(
    name: str, *jobs: Mapping[str, Any], undos: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Spell a JobGroup."""
    return {
        "apiVersion": "jobgroups.dev/v1alpha1",
        "kind": "JobGroup",
        "metadata": {"name": name},
        "spec": {"jobs": list(jobs), **({"compensation": undos} if undos else {}), **spec},
    }


class Resources:
    """The JobGroups of one namespace: changed with kubectl, looked at in the API itself."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def ask(self, kind: str, which: str) -> dict[str, Any] | None:
        """Return `/name` or `?query` of a kind, or nothing if it is not there; quick.

        A kind is one of FOLDERS, or a folder itself.
        """
        return self.api.ask("GET", FOLDERS.get(kind, kind).format(self.namespace) + which)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.api.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply manifests as a person would."""
        content = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(content))

    def patch(self, name: str, **spec: Any) -> None:
        """Change fields of a spec."""
        change = json.dumps({"spec": spec})
        self.kubectl("patch", "jobgroup", name, "--type=merge", "-p", change)

    def get(self, name: str) -> dict[str, Any]:
        """Return an object; it must be there."""
        found = self.ask("jobgroup", f"/{name}")
        assert found, f"there is no JobGroup {name}"
        del found["metadata"]["managedFields"]
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return what an object's status says."""
        return dict(self.get(name).get("status") or {})

    def delete(self, name: str) -> None:
        """Ask for an object to be deleted, and do not wait."""
        self.kubectl("delete", "jobgroup", name, "--wait=false")

    def exists(self, name: str) -> bool:
        """Say whether an object is still there."""
        return self.ask("jobgroup", f"/{name}") is not None

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Return type, reason and message of the Events about an object."""
        found = self.ask("event", f"?fieldSelector=involvedObject.name={name}")
        assert found, "a list of events, be it empty"
        return sorted((each["type"], each["reason"], each["message"]) for each in found["items"])

    def reaches(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait until a status has these values, and return it."""
        status: dict[str, Any] = {}

        def reached() -> bool:
            nonlocal status
            status = self.status(name)
            return all(status.get(field) == value for field, value in wanted.items())

        until(reached, lambda: f"never {wanted}, but {json.dumps(status, indent=1)}")
        return status

    def stalls(self, name: str, reason: str) -> str:
        """Wait until an object is stalled for a reason, and return the message."""
        found = self.condition(name, "Stalled", "True", reason)
        return str(found["message"])

    def condition(self, name: str, kind: str, value: str, reason: str = "") -> dict[str, Any]:
        """Wait for a condition, and return it."""
        found: dict[str, Any] = {}

        def holds() -> bool:
            nonlocal found
            for each in self.status(name).get("conditions", []):
                if each["type"] == kind and each["status"] == value:
                    found = each
                    return not reason or each["reason"] == reason
            return False

        until(holds, lambda: f"never {kind}={value} {reason}, but {self.status(name)}")
        return found

    def goes(self, name: str) -> None:
        """Wait until an object is gone."""
        until(lambda: not self.exists(name), lambda: f"still there: {self.get(name)}")


def until(holds: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(complaint())
        time.sleep(0.1)
