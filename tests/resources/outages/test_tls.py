"""The operator and a Redis with TLS: it connects only to a trusted server."""

from pathlib import Path

import pytest

from testbed.servers.certificates import Authority
from testbed.servers.tls import TlsRedis
from testbed.support.resources import manifest
from testbed.support.stages import LOSE, PAY, UNDOS, Stage
from testbed.support.waiting import wait_for

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
    ids=["other authority trusted", "no authority trusted", "other host"],
)
async def test_an_untrusted_certificate_is_reported_and_nothing_is_written(
    stage: Stage, tmp_path: Path, trusted: str | None, host: str, why: str
) -> None:
    authorities = {name: Authority(tmp_path, name) for name in ("ours", "theirs")}
    authority = str(authorities[trusted].certificate) if trusted else ""
    with TlsRedis(stage.redis, authorities["ours"].certify(host)) as redis:
        operator = stage.operator(REDIS_URL=redis.url, REDIS_CA_FILE=authority)
        message = f"Redis at 127.0.0.1:{redis.port} failed"
        wait_for(lambda: message in operator.probe("/readyz")[1])
        status, said = operator.probe("/readyz")
        assert (status, why in said) == (503, True)
        wait_for(lambda: message in operator.log)
        stage.resources.apply(manifest("order", PAY))
        told = stage.resources.condition("order", "Reconciling", "True", "RedisUnavailable")
        assert why in told["message"]
    assert stage.store.keys() == []
