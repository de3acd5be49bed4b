"""The reads of kopf: it discovers kinds, and lists and watches objects.

kopf itself ends the process if a watch is refused with HTTP 410, contains an ERROR event or ends in
the middle of a line, and if a list or the discovery is cut short. It replaces a silent watch, but
lists nothing: as long as each new watch is silent as well, kopf sees no change and logs no warning.

So `install` replaces the two functions with which kopf reads. A read that failed is repeated. After
a watch that failed or was silent, all objects are listed: kopf does so after an ERROR event 410.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from kopf._cogs.clients import api, errors

from handlers.kube.refusals import Refusals
from jobgroup.model.clock import backoff
from jobgroup.resource.kinds import API_VERSION, KINDS

logger = logging.getLogger(__name__)

GONE, TOO_MANY = 410, 429
LIST_AGAIN = {"type": "ERROR", "object": {"kind": "Status", "code": GONE}}
_FOLDER = f"/apis/{API_VERSION}/"
_PLURALS = {kind.plural for kind in KINDS}
_get, _stream = api.get, api.stream

# Receives the namespace of a list, or "" for all, and the uids of the objects.
ListListener = Callable[[str, set[str]], None]


class WatchFailedError(Exception):
    """A watch cannot continue after the last event; the objects must be listed."""


@dataclass(slots=True)
class Watch:
    """One watch that kopf keeps open, with the lists before it: the task, and what it received."""

    task: asyncio.Task[Any] | None
    heard_at: float
    # The numbers since the watch last delivered an event, or ended without an error.
    silences: int = 0
    failures: int = 0

    @property
    def is_running(self) -> bool:
        """Return whether kopf still watches."""
        return self.task is not None and not self.task.done()


class Watches:
    """All watches of this process; one is silent if nothing arrives for `seconds`.

    A working watch delivers an event or a bookmark within that time, or ends: the server is asked
    to end it after `server_seconds`.
    """

    def __init__(self, seconds: int, refusals: Refusals | None = None) -> None:
        self._refusals = refusals or Refusals()
        self.seconds = seconds
        self.server_seconds = seconds * 2 // 3
        self._watches: dict[str, Watch] = {}
        self._listeners: dict[str, ListListener] = {}
        # The uids of lists that have further pages, by path.
        self._listed: dict[str, set[str]] = {}

    def install(self) -> None:
        """Replace the functions with which kopf reads."""
        api.get, api.stream = self.get, self.stream

    def on_list(self, plural: str, listener: ListListener) -> None:
        """Call a listener after each complete list of a kind."""
        self._listeners[plural] = listener

    def age(self, plural: str) -> float | None:
        """Return the seconds since a watch of a kind received something; None if there was none.

        If several watches run, the least recent one counts. If all have ended, the last one counts.
        """
        found = self._of(plural)
        running = [watch.heard_at for watch in found if watch.is_running]
        heard_at = min(running) if running else max((w.heard_at for w in found), default=None)
        return None if heard_at is None else time.monotonic() - heard_at

    def silences(self, plural: str) -> int:
        """Return how many watches of a kind in a row were silent."""
        running = [watch.silences for watch in self._of(plural) if watch.is_running]
        return max(running, default=0)

    def _of(self, plural: str) -> list[Watch]:
        return [watch for path, watch in self._watches.items() if _plural(path) == plural]

    async def get(self, url: str, **kwargs: Any) -> Any:
        """Read an object, or one page of a list; repeat it until there is a whole answer."""
        path = url.partition("?")[0]
        failures = 0
        while True:
            try:
                answer = await _get(url, **kwargs)
            except errors.APIClientError as error:
                if error.status == GONE:  # a following page was refused: kopf lists again
                    raise aiohttp.ClientPayloadError("the list expired") from error
                if error.status != TOO_MANY:
                    self._refusals.count("GET", url, error.status)
                    _log_refusal(path, error)
                    raise
                reason: Exception = error
            except (errors.APIServerError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                reason = error
            else:
                self._heard(path)
                if listener := self._listeners.get(_plural(path)):
                    self._collect(url, answer, listener)
                return answer
            failures += 1
            logger.warning("cannot read %s; retrying: %r", path, reason)
            await asyncio.sleep(backoff(failures))

    async def stream(self, url: str, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """Watch objects until the server ends the watch; ask for a list if it failed."""
        path = url.partition("?")[0]
        watch = self._heard(path)
        try:
            async with aclosing(self._events(watch, url, **kwargs)) as events:
                async for event in events:
                    yield event
            return
        except ValueError as error:
            # kopf continues after the last event that was complete.
            logger.warning("the watch of %s ended in the middle of an event: %s", path, error)
            is_expired = False
        except WatchFailedError as error:
            logger.warning("the watch of %s %s; listing all objects again", path, error)
            is_expired = True
        except errors.APIError as error:
            if error.status == TOO_MANY:  # kopf lists again
                raise
            if error.status < 500 and error.status != GONE:
                self._refusals.count("GET", url, error.status)
                _log_refusal(path, error)
                raise
            logger.warning("the watch of %s is refused; listing all objects again: %r", path, error)
            is_expired = True
        watch.failures += 1
        await asyncio.sleep(backoff(watch.failures))
        if is_expired:
            yield LIST_AGAIN

    async def _events(
        self, watch: Watch, url: str, **kwargs: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Return the events of one watch; raise WatchFailedError if it fails."""
        lines = cast(AsyncGenerator[dict[str, Any], None], _stream(url, **kwargs))
        async with aclosing(lines):
            while event := await self._next(watch, lines):
                if event["type"] == "ERROR":
                    raise WatchFailedError(f"failed: {event['object']}")
                watch.failures = 0
                yield event

    async def _next(
        self, watch: Watch, lines: AsyncGenerator[dict[str, Any], None]
    ) -> dict[str, Any] | None:
        """Return the next event, or None at the end of the watch."""
        try:
            async with asyncio.timeout(self.seconds) as limit:
                event = await anext(lines, None)
        except TimeoutError:
            if not limit.expired():
                raise
            watch.silences += 1
            raise WatchFailedError(f"was silent for {self.seconds} s") from None
        watch.heard_at, watch.silences = time.monotonic(), 0
        return event

    def _collect(self, url: str, page: Mapping[str, Any], listener: ListListener) -> None:
        """Add a page to a list; after the last page, pass the list to the listener."""
        path, _, query = url.partition("?")
        listed = self._listed.setdefault(path, set())
        if "continue=" not in query:
            listed.clear()
        listed.update(each["metadata"]["uid"] for each in page.get("items", ()))
        if not page["metadata"].get("continue"):
            namespace = path.removeprefix(_FOLDER).rpartition("/")[0].removeprefix("namespaces/")
            listener(namespace, self._listed.pop(path))

    def _heard(self, path: str) -> Watch:
        """Record that a path was just listed, or is watched now."""
        task, now = asyncio.current_task(), time.monotonic()
        watch = self._watches.setdefault(path, Watch(task, now))
        watch.task, watch.heard_at = task, now
        return watch


def _plural(path: str) -> str:
    """Return the kind that a path lists or watches, if it is one of ours."""
    plural = path.rpartition("/")[2]
    return plural if path.startswith(_FOLDER) and plural in _PLURALS else ""


def _log_refusal(path: str, error: errors.APIError) -> None:
    """Log why the process exits: kopf does not continue without a watch of our kinds."""
    if _plural(path):
        logger.critical(
            "the API server refuses to list or watch %s; the process exits: %r", path, error
        )
