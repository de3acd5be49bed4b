"""The other releases of the operator in this cluster, and whether they still process an object.

A release has the name of its Lease, which also says what the release watches. A release is gone if
its Lease does not exist, or has not been renewed for some minutes: a restart or an upgrade does not
pass its objects on. Clocks differ, so the Lease must also have been unchanged between two reads.
"""

import asyncio
import json
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from handlers.kube.client import LEASES, ApiClient, ApiError
from handlers.kube.leader import LENGTH_SECONDS
from handlers.kube.selectors import parse_selector
from handlers.settings import Settings
from jobgroup.resource.decisions import Claimant, Resource

# How often a Lease is read, however many objects its release has claimed. A leader renews its Lease
# more often.
CHECK_SECONDS = 20.0
# How long an expired Lease must have been unchanged.
UNCHANGED_SECONDS = float(LENGTH_SECONDS)
# How long after the end of its Lease a release counts as alive.
GRACE_SECONDS = 300.0
# The annotation of a Lease with the scope of its release.
WATCHES = "jobgroups.dev/watches"
# Users may write any text into the annotation of an object.
_NAME = re.compile(r"[a-z0-9-]{1,63}/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Scope:
    """The objects that a release watches; no namespaces means all, and so does no selector."""

    namespaces: tuple[str, ...] = ()
    selector: str = ""

    @classmethod
    def of_lease(cls, lease: Mapping[str, Any]) -> "Scope":
        """Read the scope from a Lease; it is everything if the Lease does not say."""
        text = (lease["metadata"].get("annotations") or {}).get(WATCHES, "")
        # Users may write any text here, too.
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            found = json.loads(text)
            namespaces, selector = found["namespaces"], found["selector"]
            are_names = isinstance(namespaces, list) and all(
                isinstance(each, str) for each in namespaces
            )
            if are_names and isinstance(selector, str):
                return cls(tuple(namespaces), selector)
        return cls()

    @property
    def annotation(self) -> dict[str, str]:
        """Return the annotation of the Lease."""
        return {WATCHES: json.dumps(asdict(self))}

    def contains(self, body: Mapping[str, Any]) -> bool:
        """Return whether an object is in the scope; a selector that is invalid selects all."""
        meta = body["metadata"]
        if self.namespaces and meta["namespace"] not in self.namespaces:
            return False
        labels = meta.get("labels") or {}
        return all(each.holds(labels) for each in parse_selector(self.selector) or ())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a release."""

    claimant: Claimant
    scope: Scope = Scope()
    # Whether the Lease has expired, and the next read will show whether the release is gone.
    is_unconfirmed: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    verdict: Verdict
    read_at: float
    # The Lease as it was read, and since when it has not changed.
    renewed: str = ""
    since: float = 0.0
    # Whether the Lease has expired, unless the clock is wrong.
    is_expired: bool = False


class Releases:
    """The Leases of other releases, read when they are needed."""

    def __init__(self, api: ApiClient, settings: Settings) -> None:
        self.own = settings.release
        self._api = api
        # A release that watches some namespaces may read Leases in its own namespace alone.
        self._readable = settings.namespace if settings.namespaces else ""
        self._readings: dict[str, _Reading] = {}
        self._lock = asyncio.Lock()

    @property
    def is_unconfirmed(self) -> bool:
        """Return whether another read, after CHECK_SECONDS, may show that a release is gone."""
        return any(each.verdict.is_unconfirmed for each in self._readings.values())

    async def claimant(self, body: Mapping[str, Any]) -> tuple[Claimant, Verdict]:
        """Return who claimed an object, and what is known about that release."""
        release = Resource.read(body).claimed_by
        if release in ("", self.own):
            return Claimant.OURS, Verdict(Claimant.OURS)
        verdict = await self.look(release)
        if verdict.claimant is Claimant.ALIVE and not verdict.scope.contains(body):
            return Claimant.GONE, verdict
        return verdict.claimant, verdict

    async def look(self, release: str) -> Verdict:
        """Return what is known about a release; read its Lease at most every CHECK_SECONDS."""
        async with self._lock:
            known, now = self._readings.get(release), time.monotonic()
            if known is None or now >= known.read_at + CHECK_SECONDS:
                known = self._readings[release] = await self._read(release, known, now)
            return known.verdict

    def retain(self, releases: Collection[str]) -> None:
        """Forget all releases but these, and those whose Lease has expired.

        It would count as alive again until it is confirmed that it does not change.
        """
        self._readings = {
            name: reading
            for name, reading in self._readings.items()
            if name in releases or reading.is_expired
        }

    async def _read(self, release: str, before: _Reading | None, now: float) -> _Reading:
        namespace, _, name = release.partition("/")
        if not _NAME.fullmatch(release):
            return _Reading(Verdict(Claimant.GONE), now)
        if self._readable not in ("", namespace):
            return _Reading(Verdict(Claimant.UNKNOWN), now)
        try:
            lease = await self._api.find("GET", f"{LEASES}v1/namespaces/{namespace}/leases/{name}")
        except ApiError as error:
            if error.code != 403:
                raise
            return _Reading(Verdict(Claimant.UNKNOWN), now)
        if lease is None:
            return _Reading(Verdict(Claimant.GONE), now)
        renewed = str(lease["spec"].get("renewTime") or "")
        is_unchanged = before is not None and before.renewed == renewed
        since = before.since if before and is_unchanged else now
        is_expired = seconds_since_end(lease["spec"], datetime.now(UTC)) > GRACE_SECONDS
        is_gone = is_expired and now >= since + UNCHANGED_SECONDS
        verdict = Verdict(
            Claimant.GONE if is_gone else Claimant.ALIVE,
            Scope.of_lease(lease),
            # A Lease that is renewed has expired for a clock that is wrong.
            is_unconfirmed=is_expired and not is_gone and (before is None or is_unchanged),
        )
        return _Reading(verdict, now, renewed, since, is_expired)


def seconds_since_end(spec: Mapping[str, Any], now: datetime) -> float:
    """Return how long ago a Lease ended; infinite if it has no time of a year that Python knows."""
    length = spec.get("leaseDurationSeconds") or LENGTH_SECONDS
    try:
        renewed = datetime.fromisoformat(spec.get("renewTime") or "")
    except ValueError:
        return float("inf")
    return (now - renewed).total_seconds() - float(length)
