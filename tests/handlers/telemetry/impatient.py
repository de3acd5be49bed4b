"""The operator with /livez checks that fail without a delay."""

from handlers.telemetry import checks

checks.DEAD_SECONDS = 0

import main  # noqa: E402, F401
