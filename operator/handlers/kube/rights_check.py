"""Checks whether the operator has the rights that it needs, and logs each that is missing.

The API server answers: a SelfSubjectAccessReview for each right, which every account may create. A
review without an answer proves nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from handlers.kube.client import ApiClient, ApiError
from handlers.kube.refusals import REVIEWS
from handlers.kube.rights import Need, Review
from jobgroup.store.connection import leave_if_cancelled

logger = logging.getLogger(__name__)

# How often to check: while all rights are granted, and while one is missing or unknown.
GRANTED_SECONDS = 300.0
MISSING_SECONDS = 10.0
# The shortest time between two checks, however many requests are refused.
LEAST_SECONDS = 5.0


class RightsCheck:
    """The answers to the reviews; a request that was refused triggers a check."""

    def __init__(
        self,
        api: ApiClient,
        reviews: Sequence[Review],
        is_leader: Callable[[], bool],
        has_pools: Callable[[], bool],
    ) -> None:
        self._api = api
        self._reviews = reviews
        self._is_leader = is_leader
        self._has_pools = has_pools
        self._missing: list[Review] = []
        self._is_known = False

    def check(self) -> str:
        """Return what the leader may not do although it must, or nothing."""
        return self._describe(is_needed=True)

    def note(self) -> str:
        """Return what the leader may not do and need not do, or nothing."""
        return self._describe(is_needed=False)

    def _describe(self, is_needed: bool) -> str:
        missing = self._missing if self._is_leader() else ()
        return "; ".join(f"cannot {each}" for each in missing if self._is_needed(each) is is_needed)

    def _is_needed(self, review: Review) -> bool:
        need = review.right.need
        return need is Need.ALWAYS or (need is Need.POOLS and self._has_pools())

    async def run(self) -> None:
        """Check all rights, forever."""
        forbidden = self._api.refusals.forbidden
        while True:
            leave_if_cancelled()
            forbidden.clear()
            await self.review()
            await asyncio.sleep(LEAST_SECONDS)
            is_granted = self._is_known and not self._missing
            rest = (GRANTED_SECONDS if is_granted else MISSING_SECONDS) - LEAST_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(forbidden.wait(), rest)

    async def review(self) -> None:
        """Ask the API server about every right; log the rights that are missing, or are back."""
        try:
            missing = [each for each in self._reviews if not await self._is_allowed(each)]
        except ApiError as error:
            self._is_known = False
            logger.warning("cannot check the rights of the operator; retrying: %s", error)
            return
        for each in missing:
            if each not in self._missing:
                level = logging.ERROR if self._is_needed(each) else logging.WARNING
                logger.log(level, "a right is missing: the operator cannot %s", each)
        for each in self._missing:
            if each not in missing:
                logger.info("a right that was missing is granted: the operator can %s", each)
        self._missing, self._is_known = missing, True

    async def _is_allowed(self, review: Review) -> bool:
        answer = await self._api.request("POST", REVIEWS, review.manifest)
        return bool(answer["status"]["allowed"])
