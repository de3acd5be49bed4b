"""Counts the requests that the API server refuses."""

import asyncio
from collections import Counter

from handlers.kube.requests import parse_request
from handlers.kube.rights import RIGHTS

# The API server reviews rights at this path.
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
FORBIDDEN = 403
# The label of everything that is in no right, such as the discovery.
OTHER = "other"
# Codes that say nothing about the operator or its rights: the object is gone, exists or has
# changed, the list expired, or the server is busy.
_EXPECTED = {404, 408, 409, 410, 429}
_RESOURCES = {right.resource for right in RIGHTS}
_READS = {"get", "list", "watch"}
# Exported from zero: Prometheus does not see an increase when a series starts above zero.
NONE_REFUSED = {
    (right.verb, right.resource, code): 0
    for right in RIGHTS
    for code in ((FORBIDDEN,) if right.verb in _READS else (400, FORBIDDEN, 413, 422))
}


class Refusals:
    """Refused requests by verb, resource and HTTP code; a 403 sets `forbidden`."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.forbidden = asyncio.Event()

    def count(self, method: str, url: str, code: int) -> None:
        """Count a response, if it is a refusal."""
        if not 400 <= code < 500 or code in _EXPECTED or url == REVIEWS:
            return
        verb, resource = parse_request(method, url)
        self.counts[verb, resource if resource in _RESOURCES else OTHER, code] += 1
        if code == FORBIDDEN:
            self.forbidden.set()
