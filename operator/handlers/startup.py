"""What kopf is told before it watches anything."""

import logging
from typing import Any

import kopf

from jobgroup import __version__

logger = logging.getLogger(__name__)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Choose kopf's settings and say which version runs."""
    choose(settings)
    logger.info("jobgroup-operator %s", __version__)


def choose(settings: kopf.OperatorSettings) -> None:
    """Set what the operator relies on."""
    # Events are few and deliberate here; kopf would post one for every log line.
    settings.posting.enabled = False
    # kopf strips the finalizer of this name from objects that only have event handlers,
    # so it must never be the one the operator itself relies on.
    settings.persistence.finalizer = "jobgroups.dev/unused-by-kopf"
