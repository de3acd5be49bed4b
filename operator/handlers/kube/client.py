"""The Kubernetes API as the few typed calls the operator makes; each write is counted.

A write that carries a resourceVersion changes nothing if the object has changed since it was read:
so neither a slow worker nor a leader that was deposed in its sleep overwrites anything.
"""

import base64
import contextlib
import json
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import kopf

from jobgroup.resource import API_VERSION, PLURAL

TIMEOUT_SECONDS = 30
MANAGER = "jobgroup-operator"
JSON = "application/json"
MERGE = "application/merge-patch+json"
METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1, {JSON}"
# As short as can be: the server takes 3 MB, and an escape of a letter is three times its size.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ApiError(Exception):
    """The API server refused, or is away; `code` is HTTP's, 0 if it did not answer."""

    def __init__(self, code: int, message: str, retry_after: float = 0) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Ref:
    """One object of ours, and no other of the same name before or after it."""

    namespace: str
    name: str
    uid: str

    plural: str = PLURAL

    @property
    def path(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{self.plural}/{self.name}"

    @property
    def context(self) -> dict[str, Any]:
        """Return what a log line about it carries; kopf begins a text with what k8s_ref says."""
        ref = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        group = {"group": self.uid} if self.plural == PLURAL else {}
        kind = self.plural.removesuffix("s")
        return {"namespace": self.namespace, kind: self.name, **group, "k8s_ref": ref}


def take_deep_data() -> None:
    """Let Python's reader take all that the API server takes: data nested up to 10,000 deep.

    Else one object would end the watch of all; the one is refused later.
    """
    sys.setrecursionlimit(60_000)


def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Find out who we are and where the API is: in a pod, or from a kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


class Cluster:
    """A client of one API server."""

    def __init__(self, settings: kopf.OperatorSettings) -> None:
        self.writes: Counter[str] = Counter()
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._server = ""

    async def uid(self) -> str:
        """Return what tells this cluster from all others."""
        found = await self.request("GET", "/api/v1/namespaces/kube-system")
        return str(found["metadata"]["uid"])

    async def read(self, ref: Ref) -> dict[str, Any] | None:
        """Return an object, or nothing if it is gone or another has its name."""
        body = await self.find("GET", ref.path)
        return body if body and body["metadata"]["uid"] == ref.uid else None

    async def put_metadata(
        self, body: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace these parts of an object's metadata, if it is still as it was read; return it."""
        kept = {key: value for key, value in body.items() if key != "status"}
        changed = {**kept, "metadata": {**_untracked(body), **metadata}}
        self.writes["metadata"] += 1
        return await self._put(ref_of(body).path, changed, body)

    async def put_status(
        self, body: Mapping[str, Any], status: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace an object's status, if the object is still as it was read; return it.

        The spec stays as it is without being sent. So does the metadata, but older servers take it
        from whoever had applied it.
        """
        kinds = {key: body[key] for key in ("apiVersion", "kind")}
        changed = {**kinds, "metadata": _untracked(body), "status": status}
        path = f"{ref_of(body).path}/status"
        self.writes["status"] += 1
        return await self._put(path, changed, {**body, "status": status})

    async def _put(
        self, path: str, changed: Mapping[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace what a path stands for, and return the object, which is `body` by then.

        It costs the server less than a patch that says the same. Only its metadata is news to us:
        the rest, which may be large, is not sent back.
        """
        answer = await self.request("PUT", path, changed, accept=METADATA_ONLY)
        if answer["metadata"]["generation"] != body["metadata"]["generation"]:
            raise Conflict(409, "something that admits writes has changed the spec of this one")
        return {**body, "metadata": answer["metadata"]}

    async def delete(self, body: Mapping[str, Any]) -> None:
        """Delete an object, if it is still as it was read."""
        meta = body["metadata"]
        same = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        self.writes["delete"] += 1
        await self.find("DELETE", ref_of(body).path, {"preconditions": same})

    async def plural(self, api_version: str, kind: str) -> str | None:
        """Return what the API calls objects of a kind, if it has such."""
        folder = "/api" if "/" not in api_version else "/apis"
        found = await self.find("GET", f"{folder}/{api_version}")
        for each in (found or {}).get("resources", ()):
            if each["kind"] == kind and "/" not in each["name"]:
                return str(each["name"])
        return None

    async def scale(self, path: str, version: str, replicas: int) -> None:
        """Set a workload's replicas, if it is still as it was read."""
        change = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        self.writes["scale"] += 1
        await self.request("PATCH", f"{path}/scale?fieldManager={MANAGER}", change, MERGE)

    async def is_terminating(self, namespace: str) -> bool:
        """Say whether a namespace is on its way out."""
        found = await self.find("GET", f"/api/v1/namespaces/{namespace}")
        return found is None or found.get("status", {}).get("phase") == "Terminating"

    async def post_event(self, namespace: str, event: Mapping[str, Any]) -> bool:
        """Post an event and say that it is new, unless one of its name was posted before.

        A namespace that goes takes no more events, and that must hold up nothing else.
        """
        self.writes["event"] += 1
        try:
            await self.request("POST", f"/api/v1/namespaces/{namespace}/events", event)
        except ApiError as error:
            if error.code not in (403, 409):
                raise
            return error.code == 403
        return True

    async def find(self, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """Ask for something that may not be there."""
        try:
            return await self.request(method, path, body)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def request(
        self, method: str, path: str, body: Any = None, kind: str = JSON, accept: str = JSON
    ) -> dict[str, Any]:
        """Ask the API server; a token that ran out is read anew, once."""
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": kind})}
        try:
            try:
                return await self._send(method, path, body, headers)
            except ApiError as error:
                if error.code != 401:
                    raise
                await self.close()
                return await self._send(method, path, body, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"the API server is out of reach: {error!r}") from None

    async def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        session = self._session or self._open()
        async with session.request(
            method, f"{self._server}{path}", json=body, headers=headers
        ) as answer:
            if answer.status < 300:
                content: dict[str, Any] = await answer.json()
                return content
            text = await answer.text()
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                text = json.loads(text)["message"]  # not all of them say that they are JSON
            wait = answer.headers.get("Retry-After", "")
            error = Conflict if answer.status == 409 else ApiError
            raise error(answer.status, text[:1024], float(wait) if wait.isdecimal() else 0)

    def _open(self) -> aiohttp.ClientSession:
        info = login(settings=self._settings)
        if info is None:
            raise ApiError(0, "there is neither a service account nor a kubeconfig to log in with")
        self._server = info.server.rstrip("/")
        headers = {"Authorization": f"{info.scheme or 'Bearer'} {info.token}"} if info.token else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_trust(info)),
            headers={**headers, "User-Agent": "jobgroup-operator"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            trust_env=info.trust_env,
            json_serialize=_encode,
        )
        return self._session

    async def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class Conflict(ApiError):
    """The object has changed since it was read, or is there already."""


def ref_of(body: Mapping[str, Any]) -> Ref:
    """Name an object of ours."""
    meta = body["metadata"]
    plural = f"{body['kind'].lower()}s"
    return Ref(meta["namespace"], meta["name"], meta["uid"], plural)


def _untracked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's metadata but for who wrote which field: the server keeps that itself."""
    return {key: value for key, value in body["metadata"].items() if key != "managedFields"}


def _trust(info: kopf.ConnectionInfo) -> ssl.SSLContext:
    """Say whom to trust, and show who we are if certificates say so."""
    data = info.ca_data
    authority = base64.b64decode(data).decode() if data else None
    context = ssl.create_default_context(cafile=info.ca_path, cadata=authority)
    if info.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if info.certificate_path:
        context.load_cert_chain(info.certificate_path, info.private_key_path)
    elif info.certificate_data and info.private_key_data:
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "crt", Path(folder) / "key"
            certificate.write_bytes(base64.b64decode(info.certificate_data))
            key.write_bytes(base64.b64decode(info.private_key_data))
            context.load_cert_chain(certificate, key)
    return context
