"""The verb that removes old groups, and how long groups of the command line are kept."""

import json

from redis.asyncio import Redis

from jobgroup import JobGroups
from jobgroup.model import names
from tests.jobgroup.cli.command_line import ORDER, Cli

MANIFEST = """\
apiVersion: jobgroups.dev/v1alpha1
kind: JobGroup
metadata: {name: order-2}
spec:
  activeDeadlineSeconds: 60
  ttlSecondsAfterFinished: 86400
  jobs:
  - {name: charge, queueName: payments}
"""


async def test_prune_prints_what_it_removed(cli: Cli, groups: JobGroups, redis: Redis) -> None:
    cli("add", "-", stdin=ORDER)
    cli("add", "-", "--id=other", stdin=ORDER)
    cli("add", "-", "--id=owned", stdin=ORDER)
    for group_id in ("order-1", "other", "owned"):
        cli("cancel", group_id)
    await redis.hset(names.parent_key(groups.store.prefix, "owned"), "owner", "cluster")
    done = cli("prune", "--older-than=1d")
    assert (done.stdout, done.stderr) == ("", "jobgroup: removed 0 groups\n")
    done = cli("prune", "--older-than=0s", "--state=FAILED", "--dry-run")
    assert sorted(done.stdout.splitlines()) == [
        "order-1 FAILED WOULD BE REMOVED",
        "other FAILED WOULD BE REMOVED",
    ]
    kept = "; kept 1 group whose JobGroups own them\n"
    assert done.stderr == f"jobgroup: would remove 2 groups{kept}"
    assert cli("prune", "--older-than=0s", "--state=COMPLETED").stdout == ""
    done = cli("prune", "--older-than=0s", "--output=json")
    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == [
        "order-1",
        "other",
    ]
    assert json.loads(done.stdout.splitlines()[0]) | {"id": ""} == {
        "id": "",
        "was": "FAILED",
        "state": "REMOVED",
    }
    assert (done.returncode, done.stderr) == (0, f"jobgroup: removed 2 groups{kept}")
    assert cli("show", "order-1").returncode == 2
    await redis.hdel(names.parent_key(groups.store.prefix, "owned"), "owner")


def test_prune_needs_an_age_and_an_ended_state(cli: Cli) -> None:
    for wrong in ([], ["--older-than=7"], ["--older-than=7d", "--state=ACTIVE"]):
        assert cli("prune", *wrong).returncode == 2


async def test_a_deadline_and_a_time_to_live_of_a_file(
    cli: Cli, groups: JobGroups, redis: Redis
) -> None:
    cli("add", "-", stdin=f"{ORDER}ttlSeconds: 86400\ndeadlineSeconds: 60\n")
    cli("add", "-", stdin=MANIFEST)
    for group_id in ("order-1", "default.order-2"):
        shown = dict(line.split(None, 1) for line in cli("show", group_id).stdout.splitlines())
        assert (shown["ttlSeconds"], shown["deadlineSeconds"]) == ("86400", "60")
    await redis.zadd(names.due_key(groups.store.prefix), {"order-1": 1})
    cli("drive", "--once")
    (line,) = cli("list", "FAILED").stdout.splitlines()[1:]
    assert line.startswith("order-1 ")
    assert line.endswith("  its deadline of 60 seconds passed")


async def test_drive_removes_groups_after_the_ttl_of_the_environment(
    cli: Cli, groups: JobGroups
) -> None:
    cli("add", "-", stdin=ORDER)
    await groups.cancel_group("order-1")
    cli("drive", "--once")
    assert cli("show", "order-1").returncode == 0
    assert cli("drive", "--once", GROUP_TTL_SECONDS="x").returncode == 2
    assert cli("drive", "--once", GROUP_TTL_SECONDS="0").returncode == 0
    assert cli("show", "order-1").returncode == 2
