"""The operator, which notices at once that another release is gone."""

from handlers.kube import releases

releases.CHECK_SECONDS = releases.UNCHANGED_SECONDS = 0.5

import main  # noqa: E402, F401
