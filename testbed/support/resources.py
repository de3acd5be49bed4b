"""JobGroups on a real API server: manifests in one line, and the objects of one namespace."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from jobgroup.resource.kinds import API_VERSION, JOBGROUP
from testbed import ROOT
from testbed.servers.apiserver import ApiServer, KubectlError
from testbed.support.waiting import PATIENCE_SECONDS, wait_for

CRDS = ROOT / "deploy" / "crds"


def install_crds(api: ApiServer) -> None:
    """Install the CRDs of deploy/crds/, and wait until the API server serves them."""
    api.kubectl("apply", "-f", str(CRDS))
    # Not `kubectl wait`: it fails for a CRD that has no conditions yet. And Established means that
    # the names are accepted; the API server serves them a moment later.
    wait_for(lambda: is_served(api))


def is_served(api: ApiServer) -> bool:
    """Return whether the API server serves our kinds."""
    try:
        api.kubectl("get", "jobgroups,workerpools")
    except KubectlError:
        return False
    return True


def manifest(
    name: str, *jobs: Mapping[str, Any], undos: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return the manifest of a JobGroup."""
    return {
        "apiVersion": API_VERSION,
        "kind": JOBGROUP.name,
        "metadata": {"name": name},
        "spec": {"jobs": list(jobs), **({"compensation": undos} if undos else {}), **spec},
    }


def namespace_named(name: str) -> dict[str, Any]:
    """Return the manifest of a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


class Resources:
    """The JobGroups of one namespace, as a user of the API sees them."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.user = api.user.within(namespace)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace; for what it prints, and for what only it does."""
        return self.api.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply manifests; raise Rejected if the API server rejects one."""
        self.user.apply(*manifests)

    def patch(self, name: str, **spec: Any) -> None:
        """Change fields of a spec; raise Rejected if the API server rejects that."""
        self.user.patch(JOBGROUP.name, name, {"spec": spec})

    def get(self, name: str) -> dict[str, Any]:
        """Return an object; it must exist."""
        found = self.user.get(JOBGROUP.name, name)
        assert found, f"there is no JobGroup {name}"
        del found["metadata"]["managedFields"]
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of an object."""
        return dict(self.get(name).get("status") or {})

    def delete(self, name: str) -> None:
        """Delete an object; do not wait until it is gone."""
        self.user.delete(JOBGROUP.name, name)

    def exists(self, name: str) -> bool:
        """Return whether an object exists."""
        return self.user.get(JOBGROUP.name, name) is not None

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Return type, reason and message of the Events about an object."""
        found = self.user.find("Event", field_selector=f"involvedObject.name={name}")
        return sorted((each["type"], each["reason"], each["message"]) for each in found)

    def reaches(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait until a status has these values, and return it."""

        def reached(body: dict[str, Any]) -> bool:
            status = body.get("status") or {}
            return all(status.get(field) == value for field, value in wanted.items())

        found = self.user.wait_for(JOBGROUP.name, name, reached, wanted)
        return dict(found.get("status") or {})

    def stalls(self, name: str, reason: str) -> str:
        """Wait until an object is stalled for a reason, and return the message."""
        found = self.condition(name, "Stalled", "True", reason)
        return str(found["message"])

    def condition(self, name: str, kind: str, value: str, reason: str = "") -> dict[str, Any]:
        """Wait for a condition, and return it."""

        def matches(body: dict[str, Any]) -> list[dict[str, Any]]:
            conditions = (body.get("status") or {}).get("conditions", [])
            return [
                each
                for each in conditions
                if (each["type"], each["status"]) == (kind, value)
                and reason in ("", each["reason"])
            ]

        wanted = f"{kind}={value} {reason}"
        found = self.user.wait_for(JOBGROUP.name, name, lambda body: bool(matches(body)), wanted)
        return matches(found)[0]

    def goes(self, name: str) -> None:
        """Wait until an object is gone."""
        self.user.wait_gone(JOBGROUP.name, field_selector=f"metadata.name={name}")


def until(holds: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Wait until a check returns true; if it never does, fail with the complaint."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(complaint())
        time.sleep(0.05)
