"""The verbs that keep running: follow, add --wait and drive, with signals and closed pipes."""

import asyncio
import json
import os
import re
import signal

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups
from jobgroup.model import names
from testbed.servers.processes import free_port
from testbed.servers.stock import StockClient, fails_for_good, hangs, returns
from testbed.support.sagas import peek
from testbed.support.waiting import eventually
from tests.jobgroup.cli.command_line import ORDER, SECRET, Cli, ending_of, line_of, work

# -- follow, --wait and drive


async def test_follow_prints_changes_until_the_end(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=hangs(returns(1)), reserve=hangs(returns(2)))
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1")
    watching = await cli.start("follow", "order-1", "--output", "json")
    assert await line_of(following.stdout) == "order-1 order ACTIVE: 0/2 completed\n"
    assert json.loads(await line_of(watching.stdout))["state"] == "ACTIVE"
    await worker.release("charge")
    assert await line_of(following.stdout) == "order-1 order ACTIVE: 1/2 completed\n"
    await worker.release("reserve")
    code, output, complaints = await ending_of(following)
    assert (code, complaints) == (0, "")
    assert output.splitlines()[-1] == "order-1 order COMPLETED: 2/2 completed"
    code, output, complaints = await ending_of(watching)
    assert (code, complaints) == (0, "")
    assert json.loads(output.splitlines()[-1])["state"] == "COMPLETED"
    assert cli("follow", "order-1").stdout == "order-1 order COMPLETED: 2/2 completed\n"


async def test_wait_exits_with_1_if_the_group_fails(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=returns(1), reserve=hangs(fails_for_good("no stock")))
    await worker.work("payments:compensation", {"refund": hangs()})
    adding = await cli.start("add", "-", "--wait", stdin=asyncio.subprocess.PIPE)
    assert adding.stdin is not None
    adding.stdin.write(ORDER.encode())
    adding.stdin.write_eof()
    await worker.heard("completed", name="charge")
    await worker.release("reserve")
    await worker.heard("started", name="refund")
    undoing = (
        "order-1 order COMPENSATING: 1/2 completed, 1 failed, 0/1 undone (order-1-1: no stock)"
    )
    while await line_of(adding.stdout) != f"{undoing}\n":
        pass
    await worker.release("refund")
    code, output, complaints = await ending_of(adding)
    ended = undoing.replace("COMPENSATING", "FAILED").replace("0/1", "1/1")
    assert (code, output, complaints) == (1, f"{ended}\n", "")
    for line in (undoing, ended):
        stamped = re.escape(line) + "\n"
        assert re.fullmatch(rf"\d{{4}}-\S+Z {stamped}", await line_of(driver.stdout))


async def test_drive_prints_each_state_once(
    cli: Cli, worker: StockClient, groups: JobGroups, driver: asyncio.subprocess.Process
) -> None:
    order = ORDER + "  reserve: {name: release}\n"
    order = order.replace("compensation:", "- {name: ship, queueName: shipping}\ncompensation:")
    await work(worker, charge=hangs(fails_for_good()), reserve=returns(1))
    await worker.work("shipping", {"ship": hangs()})
    await worker.work("inventory:compensation", {"release": hangs()})
    cli("add", "-", stdin=order)
    await worker.heard("completed", name="reserve")
    await worker.heard("started", name="ship")
    await worker.release("charge")
    assert " COMPENSATING: " in await line_of(driver.stdout)
    before = await peek(groups.store, "order-1")
    await worker.release("release")

    async def counted() -> bool:
        now = await peek(groups.store, "order-1")
        return now is not None and before is not None and now.revision > before.revision

    await eventually(counted)
    await worker.release("ship")
    assert " FAILED: 2/3 completed, 1 failed, 1/1 undone" in await line_of(driver.stdout)


async def test_wait_for_several_groups(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=returns(1), reserve=returns(2), bill=fails_for_good())
    good = ORDER.replace("order-1", "good")
    bad = ORDER.replace("order-1", "bad").replace("charge", "bill")
    done = cli("add", "-", "--wait", stdin=f"{good}---\n{bad}")
    assert done.returncode == 1
    ends = {line.split()[0]: line.split()[2] for line in done.stdout.splitlines()}
    assert ends == {"good": "COMPLETED:", "bad": "FAILED:"}


async def test_on_a_terminal_one_line_is_overwritten(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=returns(1), reserve=hangs(returns(2)))
    cli("add", "-", stdin=ORDER)
    cli.env["TERM"] = "xterm"
    terminal, end = os.openpty()
    following = await cli.start("follow", "order-1", stdout=end)
    os.close(end)
    seen = ""
    while "1/2 completed" not in seen:
        seen += (await asyncio.to_thread(os.read, terminal, 1000)).decode()
    await worker.release("reserve")
    assert (await ending_of(following))[0] == 0
    seen += os.read(terminal, 1000).decode()
    os.close(terminal)
    *_, last = seen.split("\r\033[K")
    assert "\n" not in seen.removesuffix("\r\n")
    assert last == "order-1 order COMPLETED: 2/2 completed\r\n"
    assert "[##########..........] order-1 order ACTIVE: 1/2 completed" in seen


async def test_an_interrupt_ends_the_line_on_a_terminal(cli: Cli, groups: JobGroups) -> None:
    cli("add", "-", stdin=ORDER)
    cli.env["TERM"] = "xterm"
    terminal, end = os.openpty()
    following = await cli.start("follow", "order-1", stdout=end)
    os.close(end)
    seen = (await asyncio.to_thread(os.read, terminal, 1000)).decode()
    following.send_signal(signal.SIGINT)
    assert (await ending_of(following))[::2] == (130, "")
    seen += os.read(terminal, 1000).decode()
    os.close(terminal)
    assert seen.endswith("order-1 order ACTIVE: 0/2 completed\r\n")


async def test_interrupted(cli: Cli, groups: JobGroups) -> None:
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1")
    await line_of(following.stdout)
    following.send_signal(signal.SIGINT)
    assert await ending_of(following) == (130, "", "")


async def test_follow_ends_when_the_group_is_removed(
    cli: Cli, redis: Redis, groups: JobGroups, prefix: str
) -> None:
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1", "--output", "json")
    await line_of(following.stdout)
    parent, elsewhere = names.parent_key(prefix, "order-1"), names.parent_key(prefix, "elsewhere")
    await redis.rename(parent, elsewhere)
    ending = await ending_of(following)
    await redis.rename(elsewhere, parent)
    assert ending == (2, "", "jobgroup: Group order-1 not found\n")


async def test_follow_advances_a_group_if_no_driver_runs(cli: Cli, worker: StockClient) -> None:
    await work(worker)
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1")
    code, output, _ = await ending_of(following)
    assert (code, output.splitlines()[-1]) == (0, "order-1 order COMPLETED: 2/2 completed")


async def test_drive_once_finds_groups_without_a_wakeup(
    cli: Cli, groups: JobGroups, redis: Redis, prefix: str
) -> None:
    cli("add", "-", stdin=ORDER)
    await redis.lrem(f"{prefix}:payments:wait", 1, "order-1-0")
    await redis.delete(f"{prefix}:payments:order-1-0")
    await redis.srem(
        f"{names.parent_key(prefix, 'order-1')}:dependencies", f"{prefix}:payments:order-1-0"
    )
    done = cli("drive", "--once")
    assert done.returncode == 0
    assert "order-1 order FAILED" in done.stdout
    assert "order-1-0: removed from its queue" in done.stdout
    assert (
        done.stderr == "jobgroup: the resync advanced 1 groups that had no wake-up;"
        " a job may have been removed manually\n"
    )
    quiet = cli("drive", "--once")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_drive_exits_with_0_on_a_signal(
    driver: asyncio.subprocess.Process, stop: signal.Signals
) -> None:
    driver.send_signal(stop)
    assert await ending_of(driver) == (0, "", "")


async def test_drive_waits_for_redis(cli: Cli) -> None:
    driving = await cli.start("drive", "--redis", f"redis://:{SECRET}@127.0.0.1:{free_port()}")
    assert "driving" in await line_of(driving.stderr)
    said = await line_of(driving.stderr)
    assert said.startswith("jobgroup: redis: Error ")
    driving.send_signal(signal.SIGTERM)
    code, _, complaints = await ending_of(driving)
    assert code == 0
    assert SECRET not in said + complaints


# -- pipes


@pytest.mark.parametrize("args", [["show", "order-1"], ["follow", "order-1"]])
async def test_a_closed_pipe(cli: Cli, groups: JobGroups, args: list[str]) -> None:
    cli("add", "-", stdin=ORDER)
    reader, writer = os.pipe()
    os.close(reader)
    process = await cli.start(*args, stdout=writer)
    os.close(writer)
    assert await ending_of(process) == (141, "", "")


async def test_head(cli: Cli, groups: JobGroups) -> None:
    jobs = [{"name": "charge", "queueName": "payments"}] * 2000
    cli("add", "-", "--id", "long", stdin=json.dumps({"name": "long", "jobs": jobs}))
    command = f"{' '.join(cli.command)} jobs long | head -1"
    cli.command = ["sh", "-c", command]
    code, output, complaints = await ending_of(await cli.start())
    assert (code, output.split()[0], complaints) == (0, "jobId", "")
