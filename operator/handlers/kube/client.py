"""The calls of the Kubernetes API that the operator makes; each write is counted.

The number of requests is limited, except those of leader election: a lease that is not renewed in
time is lost.

A write carries a resourceVersion, so it fails if the object has changed since it was read: neither
a slow worker nor a suspended leader that resumes overwrites anything.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
import kopf

from handlers.kube.kopf_settings import login
from handlers.kube.ratelimit import TokenBucket
from handlers.kube.refs import Ref, path_of
from handlers.kube.refusals import Refusals

TIMEOUT_SECONDS = 30
MANAGER = "jobgroup-operator"
JSON = "application/json"
MERGE = "application/merge-patch+json"
LEASES = "/apis/coordination.k8s.io/"
METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1, {JSON}"
# Refusals that can end by themselves: credentials, a deleted or changed object, too many requests.
_MENDABLE = {401, 404, 408, 409, 429}
# Compact JSON: the server accepts 3 MB, and an escaped letter takes three times its size.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ApiError(Exception):
    """The API server refused a request or did not answer; `code` is HTTP's, or 0."""

    def __init__(
        self, code: int, message: str, retry_after: float = 0, is_terminating: bool = False
    ) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        # Whether the reason is that the namespace is being deleted.
        self.is_terminating = is_terminating


class StatusRefusedError(ApiError):
    """The API server refused a status, and would refuse the same write again."""


class ApiClient:
    """A client of one API server.

    `writes` counts writes by what was written, `refused` refused statuses by kind and code,
    `refusals` all refused requests. With a label selector, objects of our kinds that do not match
    it are treated as if they did not exist.
    """

    def __init__(
        self,
        settings: kopf.OperatorSettings,
        limit: TokenBucket | None = None,
        label_selector: str = "",
        refusals: Refusals | None = None,
    ) -> None:
        self.refusals = refusals or Refusals()
        self.writes: Counter[str] = Counter()
        self.refused: Counter[tuple[str, int]] = Counter()
        self._limit = limit
        self._label_selector = label_selector
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._server = ""

    async def uid(self) -> str:
        """Return the uid of the cluster, which is the uid of the namespace kube-system."""
        found = await self.request("GET", "/api/v1/namespaces/kube-system")
        return str(found["metadata"]["uid"])

    async def read(self, ref: Ref) -> dict[str, Any] | None:
        """Return an object, or None if it was deleted, even if another has its name."""
        selector = self._label_selector
        body = await (self.select(ref, selector) if selector else self.find("GET", ref.path))
        return body if body and body["metadata"]["uid"] == ref.uid else None

    async def select(self, ref: Ref, selector: str) -> dict[str, Any] | None:
        """Return an object, or None if it does not match a label selector."""
        query = {
            "fieldSelector": f"metadata.name={ref.name}",
            "labelSelector": selector,
        }
        found = await self.find("GET", f"{ref.path.rpartition('/')[0]}?{urlencode(query)}")
        return next(iter(found["items"]), None) if found else None

    async def put_metadata(
        self, body: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace parts of the metadata of an object that has not changed; return the object."""
        kept = {key: value for key, value in body.items() if key != "status"}
        changed = {**kept, "metadata": {**_untracked(body), **metadata}}
        return await self._put("metadata", path_of(body), changed, body)

    async def put_status(
        self, body: Mapping[str, Any], status: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace the status of an object that has not changed; return the object.

        The server ignores spec and metadata. The metadata is sent nevertheless: without it, older
        servers remove fields of it from the managers that applied them.
        """
        kinds = {key: body[key] for key in ("apiVersion", "kind")}
        changed = {**kinds, "metadata": _untracked(body), "status": status}
        path = f"{path_of(body)}/status"
        try:
            return await self._put("status", path, changed, {**body, "status": status})
        except ApiError as error:
            if not 400 <= error.code < 500 or error.code in _MENDABLE:
                raise
            self.refused[body["kind"], error.code] += 1
            raise StatusRefusedError(error.code, error.message) from None

    async def _put(
        self, what: str, path: str, changed: Mapping[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace an object or its status, and return `body` with the new metadata.

        A PUT costs the server less than the same patch. The response contains only the metadata:
        the rest is known and may be large.
        """
        answer = await self.write(what, "PUT", path, changed, accept=METADATA_ONLY)
        if answer["metadata"]["generation"] != body["metadata"]["generation"]:
            raise Conflict(409, "an admission webhook changed the spec during the write")
        return {**body, "metadata": answer["metadata"]}

    async def delete(self, body: Mapping[str, Any]) -> None:
        """Delete an object that has not changed since it was read."""
        meta = body["metadata"]
        same = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        self.writes["delete"] += 1
        await self.find("DELETE", path_of(body), {"preconditions": same})

    async def plural(self, api_version: str, kind: str) -> str | None:
        """Return the plural of a kind, if the API server has it."""
        folder = "/api" if "/" not in api_version else "/apis"
        found = await self.find("GET", f"{folder}/{api_version}")
        for each in (found or {}).get("resources", ()):
            if each["kind"] == kind and "/" not in each["name"]:
                return str(each["name"])
        return None

    async def scale(self, path: str, version: str, replicas: int) -> None:
        """Set the replicas of a workload that has not changed since it was read."""
        change = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        await self.write("scale", "PATCH", f"{path}/scale?fieldManager={MANAGER}", change, MERGE)

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether a namespace is being deleted."""
        found = await self.find("GET", f"/api/v1/namespaces/{namespace}")
        return found is None or found.get("status", {}).get("phase") == "Terminating"

    async def post_event(self, namespace: str, event: Mapping[str, Any]) -> bool:
        """Post an Event; return False if one with its name exists.

        A namespace that is being deleted refuses new Events (403). That is no error.
        """
        try:
            await self.write("event", "POST", f"/api/v1/namespaces/{namespace}/events", event)
        except ApiError as error:
            if error.code not in (403, 409):
                raise
            return error.code == 403
        return True

    async def write(
        self,
        what: str,
        method: str,
        path: str,
        body: Any,
        kind: str = JSON,
        accept: str = JSON,
    ) -> dict[str, Any]:
        """Send a request that writes, and count it under what it writes."""
        self.writes[what] += 1
        return await self.request(method, path, body, kind=kind, accept=accept)

    async def find(self, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """Send a request; return None if the object does not exist."""
        try:
            return await self.request(method, path, body)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def request(
        self, method: str, path: str, body: Any = None, kind: str = JSON, accept: str = JSON
    ) -> dict[str, Any]:
        """Send a request; after a 401, read the credentials again and retry once."""
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": kind})}
        try:
            try:
                return await self._send(method, path, body, headers)
            except ApiError as error:
                if error.code != 401:
                    raise
                await self.close()
                return await self._send(method, path, body, headers)
        except ApiError as error:
            if not error.is_terminating:
                self.refusals.count(method, path, error.code)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"cannot reach the API server: {error!r}") from None

    async def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        if self._limit and not path.startswith(LEASES):
            await self._limit.take()
        session = self._session or self._open()
        async with session.request(
            method, f"{self._server}{path}", json=body, headers=headers
        ) as answer:
            if answer.status < 300:
                return await _content(answer)
            text = await answer.text()
            wait = answer.headers.get("Retry-After", "")
            error = Conflict if answer.status == 409 else ApiError
            message, is_terminating = _parse_refusal(text)
            seconds = float(wait) if wait.isdecimal() else 0
            raise error(answer.status, message[:1024], seconds, is_terminating)

    def _open(self) -> aiohttp.ClientSession:
        info = login(settings=self._settings)
        if info is None:
            raise ApiError(
                0,
                "found neither a service account nor a kubeconfig; run in a pod, or set KUBECONFIG",
            )
        self._server = info.server.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers={**info.as_http_headers(), "User-Agent": MANAGER},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            json_serialize=_encode,
        )
        return self._session

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class Conflict(ApiError):
    """The object has changed since it was read, or exists already."""


async def _content(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        content: dict[str, Any] = await answer.json()
    except ValueError as error:
        raise ApiError(0, f"the answer of the API server is incomplete: {error}") from None
    return content


def _parse_refusal(text: str) -> tuple[str, bool]:
    """Return the message of a response, and whether it is that the namespace is being deleted."""
    message, causes = text, []
    with contextlib.suppress(ValueError, AttributeError, TypeError, KeyError):
        status = json.loads(text)  # not every JSON response is labelled so
        message = status["message"]
        causes = [each["reason"] for each in status["details"]["causes"]]
    return str(message), "NamespaceTerminating" in causes


def _untracked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an object without managedFields, which the server maintains."""
    return {key: value for key, value in body["metadata"].items() if key != "managedFields"}
