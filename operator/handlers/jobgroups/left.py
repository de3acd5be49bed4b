"""JobGroups that another release of the operator has claimed: nothing is done about them.

They cost one read of the Lease of their release now and then, however many they are. When the
release is gone or watches something else, they are reconciled again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handlers.jobgroups.cache import ObjectCache
from handlers.kube import releases
from handlers.kube.client import ApiError
from handlers.kube.refs import Ref
from handlers.kube.releases import Releases, Verdict
from handlers.kube.workqueue import WorkQueue
from jobgroup.resource.decisions import Resource
from jobgroup.store.connection import leave_if_cancelled

logger = logging.getLogger(__name__)

# The pause between the reads of two Leases: users may write any number of names into annotations.
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Left:
    ref: Ref
    release: str
    labels: Mapping[str, str]
    verdict: Verdict


class LeftObjects:
    """The objects that are left to other releases."""

    def __init__(self, others: Releases, cache: ObjectCache, queue: WorkQueue[Ref]) -> None:
        self._releases = others
        self._cache = cache
        self._queue = queue
        self._left: dict[str, _Left] = {}
        # The releases that were logged since objects are left to them.
        self._logged: set[str] = set()

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, uid: str) -> bool:
        return uid in self._left

    def add(self, ref: Ref, body: Mapping[str, Any], verdict: Verdict) -> bool:
        """Leave an object to the release that claimed it; return whether it is left.

        It is not if it has changed since it was read: the event has queued it.
        """
        if self._cache.is_outdated(body):
            return False
        release = Resource.read(body).claimed_by
        self._left[ref.uid] = _Left(ref, release, _labels(body), verdict)
        self._cache.remove(ref.uid)
        return True

    def take_back(self, ref: Ref) -> None:
        """Reconcile an object again."""
        self._left.pop(ref.uid, None)
        self._cache.track(ref)

    def observe(self, uid: str, body: Mapping[str, Any]) -> bool:
        """Return whether an object of a watch event is still left to the same release.

        Its labels decide which releases watch it, so it is not if they changed.
        """
        left = self._left.get(uid)
        if left is None:
            return False
        claim = (Resource.read(body).claimed_by, _labels(body))
        if claim == (left.release, left.labels):
            return True
        del self._left[uid]
        return False

    def discard(self, uid: str) -> None:
        """Drop an object that was deleted."""
        self._left.pop(uid, None)

    async def run(self) -> None:
        """Reconcile the objects of each release whose Lease changes its meaning, forever."""
        while True:
            leave_if_cancelled()
            await asyncio.sleep(releases.CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Look at the Lease of each release that objects are left to."""
        counts = Counter(each.release for each in self._left.values())
        self._releases.retain(counts.keys())
        for release in counts.keys() - self._logged:
            text = "%d JobGroups are left to the release %s, which claimed them"
            logger.info(text, counts[release], release)
        self._logged = set(counts)
        for release in counts:
            try:
                self._return(release, await self._releases.look(release))
            except ApiError:
                pass  # the reconciler reports it
            except Exception:
                logger.exception("cannot tell whether the release %s is gone; retrying", release)
            await asyncio.sleep(PAUSE_SECONDS)

    def _return(self, release: str, verdict: Verdict) -> None:
        """Reconcile the objects of a release if something else is known about it now."""
        changed = [
            each
            for each in self._left.values()
            if each.release == release and each.verdict != verdict
        ]
        for each in changed:
            self.take_back(each.ref)
            self._queue.add(each.ref)
        if changed:
            logger.info(
                "the release %s is gone or has changed; reconciling the %d JobGroups that were"
                " left to it",
                release,
                len(changed),
            )


def _labels(body: Mapping[str, Any]) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}
