"""The examples run as they stand: one order that succeeds and one that fails and is undone."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

from jobgroup import Driver, GroupState, JobGroups, keys
from jobgroup.definition import read_plans
from jobgroup.listeners import has_listener
from jobgroup.queues import Queues
from testbed.apiserver import ApiServer
from testbed.fixtures import QueueNamer
from testbed.processes import leashed
from testbed.stock import CLIENTS, PATIENCE_SECONDS
from testbed.toolchain import node
from testbed.waiting import eventually

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/undo-workers"
ORDER = (EXAMPLE / "order.yaml").read_text()
QUEUES = ("payments", "inventory", "notifications")


def node_worker(folder: Path) -> list[str]:
    """Copy the example and give it the BullMQ that `npm install` would."""
    for file in ("worker.mjs", "package.json"):
        shutil.copy(EXAMPLE / file, folder)
    (folder / "node_modules").mkdir()
    (folder / "node_modules/bullmq").symlink_to(CLIENTS / "node_modules/bullmq6")
    return [str(node()), str(folder / "worker.mjs")]


def python_worker(_folder: Path) -> list[str]:
    return [sys.executable, str(EXAMPLE / "worker.py")]


@pytest.fixture
async def groups(redis_url: str, prefix: str, queue: QueueNamer) -> AsyncIterator[JobGroups]:
    """Drive groups beside the test; they and what they leave behind are removed afterwards."""
    for name in QUEUES:
        queue(name)
    async with JobGroups.connect(redis_url, prefix) as groups:
        driving = asyncio.create_task(Driver(groups.store).run())
        yield groups
        driving.cancel()
        await asyncio.wait([driving])
        redis, books = groups.store.redis, keys.books(prefix)
        for group_id in await redis.zrange(f"{books}:saga:ended", 0, -1):
            await groups.remove_group(str(group_id))
        tombs = [key async for key in redis.scan_iter(f"{books}:tomb:*")]
        await redis.delete(f"{books}:events", keys.marker(prefix), *tombs)


async def run(groups: JobGroups, text: str) -> GroupState:
    """Add the order of a file, as the command line does, and wait for its end."""
    plans = read_plans(text, "order.yaml")
    assert await groups.store.create(plans) == [True]
    return await groups.wait_for_group(plans[0].group_id, PATIENCE_SECONDS)


@pytest.mark.parametrize("command", [node_worker, python_worker])
async def test_an_order_is_done_or_undone(
    groups: JobGroups,
    redis_url: str,
    prefix: str,
    tmp_path: Path,
    command: Callable[[Path], list[str]],
) -> None:
    process = await asyncio.create_subprocess_exec(
        *leashed(command(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "REDIS_URL": redis_url, "BULLMQ_PREFIX": prefix},
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"working\n"
        done = await run(groups, ORDER)
        assert (done.state, done.completed_count, done.undo_count) == ("COMPLETED", 3, 0)
        undone = await run(groups, ORDER.replace("quantity: 2", "quantity: 1000"))
        assert (undone.state, undone.completed_count) == ("FAILED", 2)
        assert undone.reason == "there are not 1000 of teapot"
        assert (undone.undo_count, undone.undone_count) == (2, 2)
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
        assert process.returncode == 0
        assert sorted(output.decode().splitlines()) == [
            "apologized to zoe@example.com",
            *["charged 99.99 for order 123"] * 2,
            *["confirmed order 123 to zoe@example.com"] * 2,
            "refunded pay-123",
            *["reserve-stock failed: there are not 1000 of teapot"] * 3,
            "reserved 2 of teapot for order 123",
        ]
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize("command", [node_worker, python_worker])
async def test_a_deployment_works_on_the_queue_it_is_for(
    groups: JobGroups,
    redis_url: str,
    prefix: str,
    tmp_path: Path,
    command: Callable[[Path], list[str]],
) -> None:
    names = {f"{queue}{tail}" for queue in QUEUES for tail in ("", ":compensation")}
    place = {"REDIS_URL": redis_url, "BULLMQ_PREFIX": prefix}
    process = await asyncio.create_subprocess_exec(
        *leashed(command(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **place, "QUEUES": "payments:compensation"},
    )

    async def is_there() -> bool:
        found = await Queues(groups.store.redis, prefix).connections() or ()
        return {name for name in names if has_listener(prefix, name, found)} == {
            "payments:compensation"
        }

    try:
        await eventually(is_there)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


@pytest.mark.parametrize("flavour", ["node", "python"])
def test_the_deployments_are_accepted(
    jobgroup_crd: ApiServer, namespace: str, flavour: str
) -> None:
    file = EXAMPLE / f"deployment-{flavour}.yaml"
    jobgroup_crd.kubectl("-n", namespace, "apply", "--dry-run=server", "-f", str(file))
    deployment, pool = yaml.safe_load_all(file.read_text())
    assert pool["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["QUEUES"] == pool["spec"]["queueName"]
    assert "replicas" not in deployment["spec"]


def test_npm_installs_a_version_that_is_tested() -> None:
    asked = json.loads((EXAMPLE / "package.json").read_text())["dependencies"]["bullmq"]
    tested = json.loads((CLIENTS / "package.json").read_text())["dependencies"]["bullmq6"]
    assert asked.removeprefix("^") == tested.removeprefix("npm:bullmq@")


def test_the_file_that_the_readme_adds_without_kubernetes_can_be_added() -> None:
    root = EXAMPLE.parents[1]
    (named,) = re.findall(r"python -m jobgroup add (\S+)", (root / "README.md").read_text())
    assert read_plans((root / named).read_text(), named)
