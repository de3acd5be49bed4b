"""The settings of kopf that the operator relies on, its credentials, and how deep JSON may be."""

import logging
import sys
from typing import Any

import click
import kopf

from handlers.kube.watches import Watches
from jobgroup.resource.kinds import API_GROUP, KINDS

# The time limit of kopf's other requests: a page of a list may be large.
REQUEST_SECONDS = 60


class NoDiffs(kopf.DiffBaseStorage):
    """A storage that stores nothing.

    By default, kopf copies each object at each event to find changes. The operator does not use
    these changes.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return an empty copy of an object, so that kopf compares nothing."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Return None, because nothing was stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


def raise_recursion_limit() -> None:
    """Allow JSON as deep as the API server does: 10,000 levels.

    Otherwise one such object would end the watch of all objects. It is refused later.
    """
    sys.setrecursionlimit(60_000)


def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Return server and credentials: of the pod's service account, or of a kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def namespaces_of_command() -> tuple[str, ...]:
    """Return the namespaces that `kopf run` watches: of its options or the environment."""
    context = click.get_current_context(silent=True)
    return tuple(context.params.get("namespaces") or ()) if context else ()


def configure_kopf(
    settings: kopf.OperatorSettings,
    watches: Watches,
    namespaces: bool = False,
    label_selector: str = "",
) -> None:
    """Set everything that the operator relies on; `namespaces` if kopf watches only some.

    kopf lists and watches the objects of our kinds that match the label selector.
    """
    if label_selector:
        for kind in KINDS:
            settings.watching.label_selectors[API_GROUP, kind.plural] = label_selector
    # The operator posts its own, few Events; kopf would post one for every log line.
    settings.posting.enabled = False
    # kopf removes the finalizer of this name from objects that only have event handlers, so it must
    # not be the operator's own.
    settings.persistence.finalizer = "jobgroups.dev/unused-by-kopf"
    settings.persistence.diffbase_storage = NoDiffs()
    # An account that may watch some namespaces may not be allowed to list all of them.
    settings.scanning.disabled = namespaces
    # A restart lists every object: in pages, so that few of them are in memory at a time.
    settings.watching.chunk_size = 100
    settings.watching.server_timeout = watches.server_seconds
    # `watches` notices a silent watch first.
    settings.watching.inactivity_timeout = 2 * watches.seconds
    settings.watching.connect_timeout = 10
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = REQUEST_SECONDS
    # Handlers return at once, so the task of an object ends soon: with a limit, objects would wait
    # for tasks that idle. With a timeout of 0, Python 3.11 would never read the queue.
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = 0.001
    settings.queueing.exit_timeout = 1
    settings.process.ultimate_exiting_timeout = 8
    # kopf logs each event that it passes to a handler.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
