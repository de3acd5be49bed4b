"""The commands that the runbooks run in a pod of the operator.

They run here with the environment and the files that the chart gives to the pod, on a Redis with
TLS and a password. tests/e2e/test_readme.py runs them in the image.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from testbed import ROOT
from testbed.servers.apiserver import OPERATOR_NAMESPACE
from testbed.servers.certificates import Authority
from testbed.servers.processes import leashed
from testbed.servers.redis import RedisServer
from testbed.servers.stock import fails_for_good
from testbed.servers.tls import TlsRedis
from testbed.support.chart import NAMESPACE, RELEASE, render
from testbed.support.pages import Page
from testbed.support.resources import Resources, manifest
from testbed.support.sagas import job, undo
from testbed.support.waiting import PATIENCE_SECONDS, wait_for
from tests.resources.fixtures import Shared
from tests.resources.looking import Starter, own

RUNBOOKS = Page("docs/runbooks.md")
MOUNTED = "/etc/jobgroup/redis"
PASSWORD = "p@ss/w%rd#1"  # noqa: S105 (the password of a Redis that ends with the test)
IN_POD = re.compile(r"kubectl exec --namespace (\S+) (\S+) -- (.+)$")
# The values of a cluster whose Redis has TLS and a password in a Secret.
VALUES = {
    "redis": {
        "existingSecret": {"name": "redis", "urlKey": "url", "passwordKey": "password"},
        "tls": {"caSecret": "redis-ca"},
    }
}
PROBE = "handlers.probe"
# The groups that the commands name.
SHIPPED = {"name": "ship", "queueName": "shipping"}
PAID = {"name": "pay", "queueName": "payments"}
GROUP_ID = "order-127"
GROUP = {
    "name": "order",
    "groupId": GROUP_ID,
    "jobs": [SHIPPED, PAID],
    "compensation": {"ship": {"name": "recall", "queueName": "cancellations"}},
}


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of the operator's container."""
    ours = Authority(tmp_path, "ours")
    with (
        RedisServer(tmp_path) as server,
        TlsRedis(server, ours.certify("IP:127.0.0.1")) as redis,
        Redis.from_url(server.url) as admin,
    ):
        admin.config_set("requirepass", PASSWORD)
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        (mounted / "url").write_text(redis.url)
        (mounted / "password").write_text(f"{PASSWORD}\n")
        (mounted / "ca.crt").write_bytes(ours.certificate.read_bytes())
        (deployment,) = [each for each in render(VALUES, redis={}) if each["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        files = {name for name, value in env.items() if value.startswith(MOUNTED)}
        assert files == {"REDIS_URL_FILE", "REDIS_PASSWORD_FILE", "REDIS_CA_FILE"}
        yield {
            **{name: value.replace(MOUNTED, str(mounted)) for name, value in env.items()},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "operator"),
        }
        admin.auth(PASSWORD)
        admin.config_set("requirepass", "")


def run(pod: dict[str, str], command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        leashed(["bash", "-c", command]),
        env={**pod, "GROUP": GROUP_ID},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_each_command_in_a_pod_runs_with_the_settings_of_the_chart(pod: dict[str, str]) -> None:
    commands = [match for each in RUNBOOKS.commands if (match := IN_POD.search(each.text))]
    found = [match for match in commands if PROBE not in match[3]]
    assert {match[1] for match in found} == {NAMESPACE}
    assert {match[2] for match in found} == {f"deployment/{RELEASE}"}
    verbs = {match[3].split()[3]: match[3] for match in found}
    assert verbs.keys() == {"drive", "jobs", "list", "remove", "resolve", "retry-undos", "show"}
    added = run(pod, "python3 -m jobgroup add -", stdin=json.dumps(GROUP))
    assert (added.returncode, added.stderr) == (0, "")
    reading = [match[3] for match in found if match[3].split()[3] in ("drive", "jobs", "list")]
    for command in reading:
        done = run(pod, command)
        assert (command, done.returncode, done.stderr) == (command, 0, "")
    assert "\norder-127 " in run(pod, "python3 -m jobgroup list ACTIVE").stdout
    # Without workers: somebody answers the jobs, and loses the undo.
    for answer in ("complete order-127 ship", "fail order-127 pay --reason declined"):
        assert run(pod, f"python3 -m jobgroup {answer}").returncode == 0
    run(pod, verbs["drive"])
    url, ca = Path(pod["REDIS_URL_FILE"]).read_text(), pod["REDIS_CA_FILE"]
    with Redis.from_url(url, password=PASSWORD, ssl_ca_certs=ca) as redis:
        assert redis.delete("bull:cancellations:order-127-0-undo", "bull:cancellations:wait") == 2
    run(pod, verbs["drive"])
    assert "order-127-0-undo" in run(pod, verbs["show"]).stdout
    assert "order-127 order COMPENSATING: " in run(pod, verbs["retry-undos"]).stdout
    assert ", 0/1 undone, 1 resolved" in run(pod, verbs["resolve"]).stdout
    assert run(pod, verbs["remove"]).stdout == "order-127 REMOVED\n"


async def test_the_commands_that_retry_and_resolve_undos_work_on_a_jobgroup(
    resources: Resources, worker: Starter
) -> None:
    texts = [each.text for each in RUNBOOKS.commands if "order-126" in each.text]
    retry, resolve, wait = (
        next(text for text in texts if word in text)
        for word in ("retryUndos", '"resolved"', "kubectl wait")
    )

    def kubectl(text: str) -> str:
        return resources.kubectl(*shlex.split(text)[1:])

    hotels, queue = own(resources, "hotels", "shipping")
    jobs = (job("book-hotel", hotels), job("book-shipping", queue))
    undos = {"book-shipping": {**undo("recall"), "when": "Started"}}
    resources.apply(manifest("order-126", *jobs, undos=undos))
    client = await worker("bullmq6")
    await client.work(queue, {"book-shipping": fails_for_good()})
    await client.work(f"{queue}:compensation", {"recall": fails_for_good()})
    resources.reaches("order-126", state="FAILED_COMPENSATION")
    kubectl(retry)
    status = resources.reaches("order-126", state="FAILED_COMPENSATION", observedGeneration=2)
    wait_for(lambda: resources.status("order-126")["compensation"].get("retries") == 1)
    resources.reaches("order-126", state="FAILED_COMPENSATION")
    kubectl(resolve)
    assert "condition met" in kubectl(wait)
    status = resources.status("order-126")
    assert status["compensation"] == {
        "total": 1,
        "completed": 0,
        "failed": 0,
        "retries": 1,
        "resolved": 1,
    }


def test_the_commands_that_probe_the_leader_run_in_its_pod(shared: Shared) -> None:
    found = [each.text for each in RUNBOOKS.commands if PROBE in each.text]
    assert found
    lease = shared.api.user.within(OPERATOR_NAMESPACE).get("Lease", "jobgroup-operator")
    assert lease
    for text in found:
        name, in_pod = text.split("; ", 1)
        (query,) = re.findall(r"kubectl (.+)\)$", name)
        holder = shared.api.kubectl(*shlex.split(query))
        assert holder == lease["spec"]["holderIdentity"] == "operator"
        match = IN_POD.search(in_pod)
        assert match
        assert match[2] == '"$POD"'
        pod = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "operator"),
            "PORT": str(shared.operator.port),
        }
        done = run(pod, match[3])
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_the_password_of_a_file_is_not_sent_to_another_redis(pod: dict[str, str]) -> None:
    url = Path(pod["REDIS_URL_FILE"]).read_text()
    done = run(
        pod, f"python3 -m jobgroup list ACTIVE --redis '{url}?ssl_ca_certs={pod['REDIS_CA_FILE']}'"
    )
    assert done.returncode == 3
    assert "rejected the command" in done.stderr


@pytest.mark.parametrize("name", ["REDIS_URL_FILE", "REDIS_PASSWORD_FILE", "REDIS_CA_FILE"])
def test_a_missing_file_is_named(pod: dict[str, str], name: str) -> None:
    done = run({**pod, name: "/nowhere"}, "python3 -m jobgroup drive --once")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"jobgroup: {name}: ")
    assert done.stderr.count("\n") == 1


def test_every_variable_of_a_command_is_set_by_that_command() -> None:
    used = {each.text: re.findall(r"\$\{?(\w+)", each.text) for each in RUNBOOKS.commands}
    assert any(used.values())
    unset = [
        f"{text}: {name}"
        for text, variables in used.items()
        for name in variables
        if not re.search(rf"(^|; ?){name}=", text)
    ]
    assert unset == []


def test_the_selectors_of_logs_match_the_operator_and_no_other_pod() -> None:
    found = {
        match[1]
        for each in RUNBOOKS.commands
        if (match := re.search(r"kubectl logs .*--selector (\S+)", each.text))
    }
    assert found
    workloads = {
        each["kind"]: each["spec"]["template"]["metadata"]["labels"]
        for each in render(redis={"redis": {"bundled": {"enabled": True}}})
        if "template" in each.get("spec", {})
    }
    assert workloads.keys() == {"Deployment", "StatefulSet", "Job"}
    for selector in found:
        wanted = dict(each.split("=") for each in selector.split(","))
        matching = [kind for kind, labels in workloads.items() if wanted.items() <= labels.items()]
        assert matching == ["Deployment"]
