"""A user of the Kubernetes API: the official Python client, in one namespace.

Importing this module imports the client, which takes half a second; modules that every test
imports get a user from `ApiServer.user` instead.
"""

import json
import math
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from kubernetes import config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError, NotFoundError, ResourceNotFoundError
from kubernetes.watch import Watch

from jobgroup.resource.kinds import API_VERSION, JOBGROUP, WORKERPOOL
from testbed.support.errors import Rejected
from testbed.support.waiting import PATIENCE_SECONDS

Body = dict[str, Any]

FIELD_MANAGER = "testbed"
MERGE_PATCH = "application/merge-patch+json"
# kubectl also asks the API server to reject fields that it does not know.
STRICT = ("fieldValidation", "Strict")
# The API version of each kind that tests ask for by its name alone.
API_VERSIONS = {
    JOBGROUP.name: API_VERSION,
    WORKERPOOL.name: API_VERSION,
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    **dict.fromkeys(("Event", "Namespace", "Node", "Pod", "Secret"), "v1"),
    "Lease": "coordination.k8s.io/v1",
    **dict.fromkeys(
        ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
        "rbac.authorization.k8s.io/v1",
    ),
}


@dataclass(frozen=True)
class User:
    """A connection to an API server.

    An empty namespace means all of them. Waiting ends after `patience` seconds. A kind is one of
    API_VERSIONS, or any other with its API version, as in `example.org/v1/Fleet`.
    """

    client: DynamicClient
    namespace: str
    patience: float

    @classmethod
    def connect(
        cls, kubeconfig: Path, namespace: str = "default", patience: float = PATIENCE_SECONDS
    ) -> Self:
        """Connect with the credentials of a kubeconfig's current context."""
        connection = config.new_client_from_config(str(kubeconfig))
        # By default the client stores the kinds that it discovers under the server's address, which
        # another test server may have had before. A file below a file cannot be written.
        nowhere = str(kubeconfig / "discovery.json")
        return cls(DynamicClient(connection, cache_file=nowhere), namespace, patience)

    def close(self) -> None:
        """Close the connections."""
        self.client.client.close()

    def within(self, namespace: str) -> Self:
        """Return the same user in another namespace."""
        return replace(self, namespace=namespace)

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Create objects; each must be new."""
        for body in objects:
            self._send("create", body)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create objects, or change existing ones, by server-side apply."""
        options = {"field_manager": FIELD_MANAGER, "force_conflicts": True}
        for body in objects:
            self._send("server_side_apply", body, name=body["metadata"]["name"], **options)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Change an object by a merge patch."""
        options: dict[str, Any] = {"content_type": MERGE_PATCH, "query_params": [STRICT]}
        self._request(kind, "patch", name=name, body=change, **options)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Delete an object; do not wait until it is gone. Do nothing if there is none."""
        with suppress(_Missing):
            self._request(kind, "delete", name=name, **options)

    def delete_all(self, kind: str) -> None:
        """Delete the objects of a kind in the namespace; do not wait until they are gone."""
        with suppress(_Missing, NotFoundError):
            path = self._resource(kind).path(namespace=self.namespace)
            # Only an answer that was read frees its connection.
            _ = self.client.request("delete", path, serialize=False).data

    def get(self, kind: str, name: str) -> Body | None:
        """Return an object, or None if there is none."""
        try:
            return self._request(kind, "get", name=name)
        except _Missing:
            return None

    def find(self, kind: str, **selectors: str) -> list[Body]:
        """Return the objects of a kind, none if the server does not have the kind.

        `label_selector` and `field_selector` narrow them down.
        """
        try:
            listed = self._request(kind, "get", **selectors)
        except _Missing:
            return []
        # The items of a list of built-in objects do not name their kind.
        return [{"kind": kind, **body} for body in listed["items"]]

    def watch(self, kind: str, watcher: Watch, **options: Any) -> Generator[tuple[str, Body]]:
        """Yield each change of the objects of a kind, until the server or `watcher` ends it.

        A watch without a resource_version begins with the objects that exist, as ADDED.
        """
        resource = self._resource(kind)
        options = {"namespace": self.namespace, "serialize": False, **options}
        for event in watcher.stream(resource.get, **options):
            yield event["type"], event["object"]

    def wait_for(
        self, kind: str, name: str, holds: Callable[[Body], bool], expected: object = "as expected"
    ) -> Body:
        """Wait until a check of an object returns true, and return the object; it must exist."""
        found: Body | None = None
        with closing(self._states(kind, field_selector=f"metadata.name={name}")) as states:
            for objects in states:
                assert name in objects, f"there is no {kind} {name}"
                found = objects[name]
                if holds(found):
                    return found
        state = json.dumps((found or {}).get("status"), indent=1)
        raise AssertionError(f"{kind} {name} is not {expected} after {self.patience:g} s: {state}")

    def wait_gone(self, kind: str, **selectors: str) -> None:
        """Wait until no object of a kind matches the selectors."""
        left: list[str] = []
        with closing(self._states(kind, **selectors)) as states:
            for objects in states:
                left = sorted(objects)
                if not left:
                    return
        raise AssertionError(f"{kind} still there after {self.patience:g} s: {', '.join(left)}")

    def _states(self, kind: str, **selectors: str) -> Generator[dict[str, Body]]:
        """Yield the selected objects by name: as they are, and again after each change."""
        deadline = time.monotonic() + self.patience
        while (left := deadline - time.monotonic()) > 0:
            listed = self._request(kind, "get", **selectors)
            objects = {body["metadata"]["name"]: body for body in listed["items"]}
            yield objects
            limits = {
                "resource_version": listed["metadata"]["resourceVersion"],
                "timeout_seconds": math.ceil(left),
            }
            try:
                with closing(self.watch(kind, Watch(), **limits, **selectors)) as changes:
                    for change, body in changes:
                        objects.pop(body["metadata"]["name"], None)
                        if change != "DELETED":
                            objects[body["metadata"]["name"]] = body
                        yield objects
            except ApiException as error:
                # The server no longer has the changes since the list: list again.
                if error.status != HTTPStatus.GONE:
                    raise

    def _send(self, verb: str, body: Mapping[str, Any], **options: Any) -> None:
        """Send an object to the namespace that it names, or to the user's."""
        kind = f"{body['apiVersion']}/{body['kind']}"
        namespace = body["metadata"].get("namespace") or self.namespace
        options |= {"namespace": namespace, "query_params": [STRICT]}
        content = _yaml(body) if verb == "server_side_apply" else body
        self._request(kind, verb, body=content, **options)

    def _request(self, kind: str, verb: str, /, **arguments: Any) -> Body:
        """Send a request and return the answer; raise Rejected if the server rejects it."""
        call = getattr(self._resource(kind), verb)
        # Not the client's own objects: converting the answer to them fails for deeply nested data.
        options = {"namespace": self.namespace, "serialize": False, **arguments}
        try:
            answer = call(**options)
        except NotFoundError as error:
            raise _Missing(_message(error)) from None
        except DynamicApiError as error:
            raise Rejected(_message(error)) from None
        found: Body = json.loads(answer.data)
        return found

    def _resource(self, kind: str) -> Any:
        version, _, kind = kind.rpartition("/")
        version = version or API_VERSIONS[kind]
        try:
            return self.client.resources.get(api_version=version, kind=kind)
        except ResourceNotFoundError:
            raise _Missing(f"the API server has no kind {kind} of {version}") from None


class _Missing(Rejected):
    """There is no such object, or no such kind."""


def _yaml(body: Mapping[str, Any]) -> str:
    """Return JSON that is YAML, too.

    JSON escapes a character beyond U+FFFF as two, which the API server's YAML parser rejects.
    """
    text = json.dumps(body, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", text)


def _message(error: DynamicApiError) -> str:
    """Return the message of the API server."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}: {error.body}"
