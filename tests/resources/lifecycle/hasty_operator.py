"""The operator with a queue watch that reports a missing worker at once."""

from handlers.jobgroups import queue_watch, reporter

queue_watch.PATIENCE_SECONDS = 0.0
queue_watch.CHECK_SECONDS = reporter.NO_WORKER_SECONDS = 0.2

import main  # noqa: E402, F401
