"""An API server without the CRDs and with an audit log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.servers.apiserver import ApiServer
from testbed.support import audit


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="session")
def bare_api(tmp_path_factory: pytest.TempPathFactory, audit_log: Path) -> Iterator[ApiServer]:
    policy = audit_log.with_name("policy.yaml")
    policy.write_text(yaml.safe_dump(audit.POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"]
    with ApiServer(tmp_path_factory.mktemp("bare"), apiserver_flags=flags) as api:
        yield api
