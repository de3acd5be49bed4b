"""JobGroups of the smallest and of the largest size, and kubectl to apply them."""

import json
import secrets
from typing import Any, Self

import pytest

from jobgroup.resource.kinds import API_VERSION, JOBGROUP
from testbed.servers.apiserver import ApiServer, KubectlError

Object = dict[str, Any]


def job_group(jobs: int = 2, name: str = "order", **spec: Any) -> Object:
    # The longest names that fit into a full object.
    names = [f"job-{n:04}".ljust(60, "x") for n in range(jobs)]
    return {
        "apiVersion": API_VERSION,
        "kind": JOBGROUP.name,
        "metadata": {"name": name},
        "spec": {
            "jobs": [
                {"name": name, "queueName": "payments", "data": {"n": n}, "opts": {"attempts": 3}}
                for n, name in enumerate(names)
            ],
            "compensation": {name: {"name": "undo", "opts": {"attempts": 2}} for name in names},
            **spec,
        },
    }


def size_of(spec: Object) -> int:
    return len(json.dumps(spec, separators=(",", ":")))


def first(body: Object) -> Object:
    found: Object = body["spec"]["jobs"][0]
    return found


def last(body: Object) -> Object:
    found: Object = body["spec"]["jobs"][-1]
    return found


def undo(body: Object) -> Object:
    """Return the compensation of the last job."""
    found: Object = body["spec"]["compensation"][last(body)["name"]]
    return found


class Kubectl:
    """kubectl in a new namespace; it applies small objects client-side, full ones server-side."""

    def __init__(self, api: ApiServer) -> None:
        self._api, self._namespace = api, f"applied-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        self._api.kubectl("create", "namespace", self._namespace)
        return self

    def __exit__(self, *_: object) -> None:
        # A later test may start an operator on this server, which must find no object.
        self("delete", "jobgroups", "--all")
        # Without controllers the namespace stays in Terminating; its name is not used again.
        self._api.kubectl("delete", "namespace", self._namespace, "--wait=false")

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self._api.kubectl("-n", self._namespace, *arguments, stdin=stdin)

    def apply(self, body: Object, *flags: str) -> str:
        if len(body["spec"].get("jobs", ())) > 100:
            flags = ("--server-side", *flags)
        return self("apply", "-f", "-", *flags, stdin=json.dumps(body))

    def refusal(self, body: Object, *flags: str) -> str:
        with pytest.raises(KubectlError) as caught:
            self.apply(body, *flags)
        return str(caught.value)

    def read(self, name: str = "order") -> Object:
        found: Object = json.loads(self("get", "jobgroup", name, "-o", "json"))
        return found

    def write_status(self, name: str = "order", **status: Any) -> None:
        patch = json.dumps({"status": status})
        self("patch", "jobgroup", name, "--subresource=status", "--type=merge", "-p", patch)
