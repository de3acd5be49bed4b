"""The operator and a Redis behind TLS: it shakes hands with the one it trusts, and no other."""

from pathlib import Path

import pytest

from testbed.resources import manifest
from testbed.stages import LOSE, PAY, UNDOS, Stage
from testbed.tls import Authority, TlsRedis
from testbed.waiting import wait_for

HERE = "IP:127.0.0.1"


async def test_a_group_is_run_and_undone_over_tls(stage: Stage, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    with TlsRedis(stage.redis, ours.certify(HERE)) as redis:
        operator = stage.operator(REDIS_URL=redis.url, REDIS_CA_FILE=str(ours.certificate))
        await stage.worker()
        stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
        stage.resources.reaches("order", state="FAILED", undone="1/1")
        assert operator.probe("/readyz") == (200, "ok\n")


@pytest.mark.parametrize(
    ("trusted", "host", "why"),
    [
        ("theirs", HERE, "certificate verify failed"),
        (None, HERE, "certificate verify failed"),
        ("ours", "DNS:redis.elsewhere", "IP address mismatch"),
    ],
    ids=["signed by a stranger", "trusted by nobody here", "of another host"],
)
async def test_a_certificate_that_is_not_trusted_is_said_and_nothing_is_written(
    stage: Stage, tmp_path: Path, trusted: str | None, host: str, why: str
) -> None:
    authorities = {name: Authority(tmp_path, name) for name in ("ours", "theirs")}
    authority = str(authorities[trusted].certificate) if trusted else ""
    with TlsRedis(stage.redis, authorities["ours"].certify(host)) as redis:
        operator = stage.operator(REDIS_URL=redis.url, REDIS_CA_FILE=authority)
        sentence = f"Redis at 127.0.0.1:{redis.port} does not answer"
        wait_for(lambda: sentence in operator.probe("/readyz")[1])
        status, said = operator.probe("/readyz")
        assert (status, why in said) == (503, True)
        wait_for(lambda: sentence in operator.log)
        stage.resources.apply(manifest("order", PAY))
        told = stage.resources.condition("order", "Reconciling", "True", "RedisUnavailable")
        assert why in told["message"]
    assert stage.store.keys() == []
