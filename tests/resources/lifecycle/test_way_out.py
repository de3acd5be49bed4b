"""The documented command that releases the JobGroups of an operator that is gone."""

import os
import subprocess

from jobgroup.resource.decisions import FINALIZER
from testbed.servers.processes import leashed
from testbed.support.pages import Page
from testbed.support.resources import Resources, manifest, namespace_named
from testbed.support.stages import WAIT, Stage
from testbed.support.waiting import PATIENCE_SECONDS, wait_for

FOREIGN = "example.org/keep"


def run(stage: Stage, command: str) -> None:
    tools = f"{stage.api.kubectl_path.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        leashed(["bash", "-c", command]),
        env={"KUBECONFIG": str(stage.api.admin), "PATH": tools},
        timeout=PATIENCE_SECONDS,
        check=True,
    )


async def test_a_namespace_that_hangs_after_the_operator_is_gone_can_be_deleted(
    island: Stage,
) -> None:
    operator = island.operator()
    other = Resources(island.api, f"{island.namespace}-other")
    island.api.user.create(namespace_named(other.namespace))
    shared = manifest("shared", WAIT)
    shared["metadata"]["finalizers"] = [FOREIGN]
    island.resources.apply(manifest("order", WAIT), manifest("second", WAIT))
    other.apply(shared)
    for each, name in (
        (island.resources, "order"),
        (island.resources, "second"),
        (other, "shared"),
    ):
        each.reaches(name, state="ACTIVE")
    assert set(other.get("shared")["metadata"]["finalizers"]) == {FINALIZER, FOREIGN}
    operator.server.kill()
    island.api.kubectl("delete", "namespace", island.namespace, "--wait=false")

    def hangs() -> bool:
        found = island.api.user.get("Namespace", island.namespace) or {}
        conditions = found.get("status", {}).get("conditions") or ()
        return any(
            each["type"] == "NamespaceFinalizersRemaining" and each["status"] == "True"
            for each in conditions
        )

    wait_for(hangs)
    (command,) = [
        each.text
        for each in Page("docs/installing.md").commands
        if "kubectl patch jobgroup" in each.text
    ]
    run(island, command)
    wait_for(lambda: not island.namespace_exists())
    # The finalizers of others are kept.
    assert other.get("shared")["metadata"]["finalizers"] == [FOREIGN]
    other.delete("shared")
    run(island, command.replace(FINALIZER, FOREIGN))
    other.goes("shared")
    island.api.user.delete("Namespace", other.namespace)
