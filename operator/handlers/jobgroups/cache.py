"""What this process remembers of objects under way, so that it need not ask the API server.

All of it may be outdated or missing: a write that carries an old resourceVersion changes nothing,
and what is not remembered is read. Small objects are kept as text, a third of what they take up
as dictionaries; the large ones, and those of a large crowd, are not kept at all.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handlers.cluster import Ref

Body = dict[str, Any]

# Together 16 MB at most.
MOST_BYTES = 16_000
MOST_OBJECTS = 1000
# More jobs than this cannot be small; there is no need to spell them out first.
MOST_JOBS = 100


@dataclass(frozen=True, slots=True)
class Written:
    """What this process last wrote to an object."""

    version: str
    at: float
    size: int
    state: str


class Memory:
    """Objects by uid: those under way, what was written to them, and how they looked last."""

    def __init__(self) -> None:
        self.running: dict[str, Ref] = {}
        self.written: dict[str, Written] = {}
        self._newest: dict[str, int] = {}
        self._texts: dict[str, str] = {}

    def is_known(self, body: Mapping[str, Any]) -> bool:
        """Say whether an object that the watch brings is as this process wrote it, or older."""
        written = self.written.get(body["metadata"]["uid"])
        if written is None:
            return False
        version = body["metadata"]["resourceVersion"]
        return version == written.version or 0 < _number(version) < _number(written.version)

    def saw(self, body: Mapping[str, Any]) -> None:
        """Remember an object as it was read, or as the watch brought it."""
        jobs = (body.get("spec") or {}).get("jobs") or ()
        self._keep(body["metadata"], _text(body) if len(jobs) <= MOST_JOBS else "")

    def wrote(self, body: Body) -> None:
        """Remember an object as a write left it."""
        meta, text = body["metadata"], _text(body)
        state = (body.get("status") or {}).get("state") or ""
        version = meta["resourceVersion"]
        self.written[meta["uid"]] = Written(version, time.monotonic(), len(text), state)
        self._keep(meta, text)

    def untouched(self, uid: str) -> Written | None:
        """Return what was last written to an object, if nothing newer was seen of it."""
        written = self.written.get(uid)
        is_newest = written and self._newest.get(uid) == _number(written.version)
        return written if is_newest else None

    def recall(self, uid: str) -> Body | None:
        """Return an object as it was last seen or written."""
        text = self._texts.get(uid)
        return json.loads(text) if text else None

    def doubt(self, uid: str) -> None:
        """Have an object read before it is looked at again."""
        self._texts.pop(uid, None)

    def doubt_all(self) -> None:
        """Have every object read before it is looked at again."""
        self._texts.clear()

    def forget(self, uid: str) -> None:
        """Remember nothing of an object that has ended or is gone."""
        self.running.pop(uid, None)
        self.written.pop(uid, None)
        self._newest.pop(uid, None)
        self._texts.pop(uid, None)

    def _keep(self, meta: Mapping[str, Any], text: str) -> None:
        """Keep the newest: an answer and the watch may overtake one another."""
        uid, version = meta["uid"], _number(meta["resourceVersion"])
        if version < self._newest.get(uid, 1):
            return
        self._newest[uid] = version
        self._texts.pop(uid, None)
        if 0 < len(text) <= MOST_BYTES:
            self._texts[uid] = text
        if len(self._texts) > MOST_OBJECTS:
            del self._texts[next(iter(self._texts))]


def _number(version: str) -> int:
    """Return a resourceVersion as the growing number it is, or 0 if a server has other ideas."""
    return int(version) if version.isdecimal() else 0


def _text(body: Mapping[str, Any]) -> str:
    """Spell an object out, without the list of who wrote which field."""
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return json.dumps({**body, "metadata": meta})
