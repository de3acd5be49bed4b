"""A replica of the operator that runs inside the test."""

import os
from collections.abc import AsyncIterator

import kopf
import pytest

from handlers.kube.client import ApiClient
from jobgroup import Store, connect
from jobgroup.model.clock import now_ms
from testbed.support.stages import PREFIX, Stage
from tests.handlers.jobgroups.reconcilers import Replica


@pytest.fixture
async def replica(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(stage.api.operator))
    api = ApiClient(kopf.OperatorSettings())
    async with connect(stage.redis.url) as redis:
        replica = Replica(stage, api, Store(redis, PREFIX))
        monkeypatch.setattr(
            "handlers.jobgroups.reconciler.now_ms", lambda: now_ms() + replica.ahead
        )
        yield replica
    await api.close()
