"""The operator in a burst that does not end: other objects always wait."""

from typing import Any

from handlers.kube.workqueue import WorkQueue
from jobgroup.resource import decisions


def yes(self: WorkQueue[Any], large: bool = False) -> bool:
    return True


def no(self: WorkQueue[Any], large: bool) -> bool:
    return False


decisions.FIRST_REPORT_MS = 3_600_000
WorkQueue.is_busy, WorkQueue._is_idle = yes, no  # type: ignore[method-assign]

import main  # noqa: E402, F401
