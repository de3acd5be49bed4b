"""How many JobGroups each namespace has in each state, counted from watch events.

It passes the events on to the controller of JobGroups. The operator uses it only if the setting
METRICS_BY_NAMESPACE is true: it keeps about 300 bytes per object, also of those that have ended.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from handlers.kube.refs import Ref
from handlers.kube.worker import Controller
from handlers.telemetry.state import NO_STATE


class NamespaceCounts:
    """Counts objects by namespace and state, and passes them on."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._places: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, Counter[str]] = {}

    def enqueue(self, ref: Ref, body: dict[str, Any]) -> None:
        """Count an object that was added or modified, and reconcile it."""
        state = (body.get("status") or {}).get("state") or NO_STATE
        self._move(ref.uid, (ref.namespace, state))
        self._controller.enqueue(ref, body)

    def forget(self, ref: Ref) -> None:
        """Do not count an object that was deleted."""
        self._move(ref.uid, None)
        self._controller.forget(ref)

    def retain(self, namespace: str, uids: Collection[str]) -> None:
        """Count only objects that were listed: deletions between two watches cause no event.

        An empty namespace means all namespaces.
        """
        for uid, (place, _) in list(self._places.items()):
            if uid not in uids and namespace in ("", place):
                self._move(uid, None)

    def by_namespace(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of objects by namespace and state; the oldest namespace is first."""
        return self._counts

    def _move(self, uid: str, new: tuple[str, str] | None) -> None:
        old = self._places.pop(uid, None)
        if new:
            self._places[uid] = new
            self._counts.setdefault(new[0], Counter())[new[1]] += 1
        if old:
            namespace, state = old
            self._counts[namespace][state] -= 1
            if not self._counts[namespace].total():
                del self._counts[namespace]
