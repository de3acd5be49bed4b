"""JobGroup objects in progress, as this process last observed or wrote them.

It is not an informer: it is neither complete nor authoritative. It only saves reads from the API
server. An object that is missing here is read. A write carries a resourceVersion, so a decision
made from a stale copy changes nothing. Steps that no resourceVersion protects read first.

Small objects are stored as JSON text, which takes a third of the memory of dictionaries. Large
objects, and objects beyond a fixed number, are not stored.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handlers.kube.refs import Ref
from jobgroup.resource.status import PENDING

Body = dict[str, Any]

# Together 16 MB at most.
MAX_BYTES = 16_000
MAX_OBJECTS = 1000
# An object with more jobs than this is larger than MAX_BYTES: it is not even serialized.
MAX_JOBS = 100


@dataclass(frozen=True, slots=True)
class Write:
    """The last write of this process to an object."""

    version: str
    at: float
    size: int
    state: str


class ObjectCache:
    """Objects by uid: references of those in progress, own writes, and the last known content."""

    def __init__(self) -> None:
        self._running: dict[str, Ref] = {}
        self._writes: dict[str, Write] = {}
        self._newest: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._unreported: set[str] = set()

    @property
    def running(self) -> Mapping[str, Ref]:
        """The objects in progress by uid; a live view."""
        return self._running

    def track(self, ref: Ref) -> None:
        """Add an object to those in progress."""
        self._running[ref.uid] = ref

    def is_own_write(self, body: Mapping[str, Any]) -> bool:
        """Return whether a watch event shows what this process wrote, or an older version."""
        write = self._writes.get(body["metadata"]["uid"])
        if write is None:
            return False
        version = body["metadata"]["resourceVersion"]
        return version == write.version or 0 < _number(version) < _number(write.version)

    def observe(self, body: Mapping[str, Any]) -> None:
        """Store an object that was read or that arrived in a watch event."""
        jobs = (body.get("spec") or {}).get("jobs") or ()
        self._store(body["metadata"], _text(body) if len(jobs) <= MAX_JOBS else "")

    def is_outdated(self, body: Mapping[str, Any]) -> bool:
        """Return whether a newer version of an object was observed."""
        meta = body["metadata"]
        return self._newest.get(meta["uid"], 0) > _number(meta["resourceVersion"])

    def record_write(self, body: Body) -> None:
        """Store an object as a write of this process left it."""
        meta, text = body["metadata"], _text(body)
        state = (body.get("status") or {}).get("state") or ""
        version = meta["resourceVersion"]
        self._writes[meta["uid"]] = Write(version, time.monotonic(), len(text), state)
        if state not in ("", PENDING):
            self._unreported.discard(meta["uid"])
        self._store(meta, text)

    def mark_unreported(self, uid: str) -> None:
        """Record that an object has a group, which its status does not report yet."""
        self._unreported.add(uid)

    def unreported_state(self, uid: str) -> str:
        """Return the state of a group that exists or existed, but that no status reports yet.

        Without it, a group that Redis has lost would be created again.
        """
        return "ACTIVE" if uid in self._unreported else ""

    def last_write(self, uid: str) -> Write | None:
        """Return the last write of this process to an object."""
        return self._writes.get(uid)

    def last_write_if_current(self, uid: str) -> Write | None:
        """Return the last write to an object, unless a newer version of it was observed."""
        write = self._writes.get(uid)
        is_newest = write and self._newest.get(uid) == _number(write.version)
        return write if is_newest else None

    def get(self, uid: str) -> Body | None:
        """Return an object as it was last observed or written."""
        text = self._texts.get(uid)
        return json.loads(text) if text else None

    def invalidate(self, uid: str) -> None:
        """Drop the content of an object: it must be read before the next decision."""
        self._texts.pop(uid, None)

    def invalidate_all(self) -> None:
        """Drop the content of all objects."""
        self._texts.clear()

    def remove(self, uid: str) -> None:
        """Drop everything about an object that has ended or was deleted."""
        self._running.pop(uid, None)
        self._writes.pop(uid, None)
        self._newest.pop(uid, None)
        self._texts.pop(uid, None)
        self._unreported.discard(uid)

    def _store(self, meta: Mapping[str, Any], text: str) -> None:
        """Keep the newest version: API responses and watch events may arrive in any order."""
        uid, version = meta["uid"], _number(meta["resourceVersion"])
        if version < self._newest.get(uid, 1):
            return
        self._newest[uid] = version
        self._texts.pop(uid, None)
        if 0 < len(text) <= MAX_BYTES:
            self._texts[uid] = text
        if len(self._texts) > MAX_OBJECTS:
            del self._texts[next(iter(self._texts))]


def _number(version: str) -> int:
    """Return a resourceVersion as a number, or 0 if the server does not use growing numbers."""
    return int(version) if version.isdecimal() else 0


def _text(body: Mapping[str, Any]) -> str:
    """Serialize an object without its managedFields."""
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return json.dumps({**body, "metadata": meta})
