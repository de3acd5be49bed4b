"""The pages are right: the commands that they show print what the pages show.

A test handles each fenced block by its language; a block in an unknown language fails. The commands
run on the parts of the demo: an API server, Redis, the operator and the workers of the example.
"""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis

from jobgroup import __version__
from jobgroup.store.scripts import FOLDER
from testbed import ROOT
from testbed.demo.parts import Parts
from testbed.images import make_image, project
from testbed.servers.access import restricted
from testbed.servers.apiserver import ApiServer, KubectlError
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_sentinel import SERVICE, SentinelServers
from testbed.servers.stock import CLIENTS
from testbed.support.chart import helm, render
from testbed.support.examples import ORDERS, problem_orders
from testbed.support.pages import Block, Command, Page, blocks, pages
from testbed.support.reader import Reader, on
from testbed.support.resources import Resources, manifest
from testbed.support.waiting import wait_for

# The languages of blocks that the tests below handle.
LANGUAGES = {"console", "yaml", "json", "python", "js", "mermaid", ""}
# The folder in which the commands of a page run, if not the root of the project.
HOMES = {"docs/command-line.md": ORDERS, "examples/order-fulfilment/README.md": ORDERS}
# The files of a page that are workers.
WORKERS = {"docs/guide.md": ["flights.mjs", "hotels.py"], "docs/nodejs.md": ["restaurant.mjs"]}
# Pages whose numbers differ from run to run.
NUMBERS = {"docs/workerpool.md"}
ENDLESS = re.compile(
    r"jobgroup drive(?! --once)|--watch|kopf run"
    r"|^node (worker|events|alerts|behind-sentinel|on-cluster)\.mjs"
)
# Commands that need a container engine or pods; tests/e2e/test_readme.py runs them, or tests below
# check their arguments.
ENGINE = re.compile(r"^(docker build|kind create|kubectl port-forward) ")
# The page whose commands run on an API server of its own, on which nothing is installed.
INSTALLING = "docs/installing.md"
# The page whose commands also need sentinels and a Redis Cluster.
PRODUCTION = "docs/redis-in-production.md"
# Kinds of tools that are not installed here.
FOREIGN = {"Kustomization"}
# Blocks of no language: the tree of folders, and what workers and a driver print. Here the operator
# may be the driver, and it prints elsewhere; tests/jobgroup/cli/test_verbs.py tests these lines.
EXAMPLE = "examples/order-fulfilment/README.md"
TEXTS = {"docs/design.md", EXAMPLE, "docs/command-line.md"}

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace"}
LOCAL = "redis://127.0.0.1:6379/0"
# How the image is run; tests/e2e/test_image.py runs the image itself.
IMAGE = rf"^docker run --rm --read-only jobgroup-operator:{__version__} "

# No pods run here; test_runbooks.py runs the commands with the environment of the chart's pods.
IN_POD = r"kubectl exec --namespace jobgroup-system deployment/jobgroup-operator -- "

PAGES = pages()

Adapt = Callable[[Command], Command]


def test_every_block_has_a_known_language() -> None:
    strange = [
        str(each) for page in PAGES for each in page.blocks if each.language not in LANGUAGES
    ]
    assert strange == []
    assert {each.page for each in blocks("")} <= TEXTS
    assert [str(each) for each in blocks("js") if not is_run(each)] == []


def is_run(block: Block) -> bool:
    """Return whether a file is a worker of its page, or run by a command of it."""
    typed = [command.text.split()[:2] for command in Page(block.page).commands]
    return block.file in WORKERS.get(block.page, ()) or ["node", block.file] in typed


def has_target(page: Page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = ((ROOT / page.path).parent / path).resolve() if path else ROOT / page.path
    if re.match(r"https?://", link):
        return True
    return target.exists() and (not anchor or anchor in Page(str(target)).anchors)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_has_a_target(page: Page) -> None:
    broken = [link for link in page.links if not has_target(page, link)]
    assert broken == []


def read(
    parts: Parts, page: Page, adapt: Adapt, prepare: Callable[[Reader], None] = lambda _: None
) -> None:
    """Run the commands of a page, in their order."""
    home, any_number = HOMES.get(page.path, ROOT), page.path in NUMBERS
    with Reader(parts.folder, on(parts), page, home, any_number) as reader:
        prepare(reader)
        if page.path in BEFORE:
            BEFORE[page.path](parts, reader)
        for file in WORKERS.get(page.path, ()):
            reader.work(file)
        for command in page.commands:
            if ENGINE.search(command.text):
                continue
            if ENDLESS.search(command.text):
                reader.leave_running(adapt(command))
            else:
                reader.follow(adapt(command))


def changed(command: Command, changes: dict[str, str]) -> Command:
    text = command.text
    for pattern, put in changes.items():
        text = re.sub(pattern, put, text, count=1)
    return replace(command, text=text)


def adapted(command: Command) -> Command:
    """Change a command so that it runs here, or prints what it would do."""
    changes = {
        r"\bmake\b": "make --dry-run",
        r"^npm install\b": "npm install --dry-run --offline",
        r"^helm install\b": "helm template",
        r"^kubectl wait\b": "kubectl wait --timeout=120s",
        IN_POD: "",
        # test_runbooks.py runs the probe.
        r"kubectl exec .* -- python3 -m handlers.probe readyz$": 'echo "$POD"',
        IMAGE: "python operator/main.py ",
        r"^REDIS_URL=redis://redis:6379/0 kopf": 'PORT=0 REDIS_URL="$REDIS_URL" kopf',
    }
    return changed(command, changes)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.commands and page.path not in (INSTALLING, PRODUCTION)],
    ids=str,
)
def test_the_commands_of_a_page_print_what_the_page_shows(shop: Parts, page: Page) -> None:
    read(shop, page, adapted)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="Redis 8.0 is a package of Debian")
def test_the_clients_of_the_page_about_production_connect(shop: Parts, tmp_path: Path) -> None:
    """Run its commands with Sentinel and a Cluster, which have the users of the page."""
    with (
        SentinelServers(tmp_path / "sentinel") as sentinels,
        ClusterServers(tmp_path / "cluster") as nodes,
    ):
        restricted(sentinels)
        restricted(nodes).grant("{bull}")
        hosts = {
            **{f"sentinel-{n}.redis": each.port for n, each in enumerate(sentinels.sentinels)},
            **{f"node-{n}.redis": each.port for n, each in enumerate(nodes.nodes)},
        }

        def here(text: str) -> str:
            """Put the real addresses in place of those of the page."""
            text = re.sub("mymaster", SERVICE, text)
            text = re.sub(r'"([\w-]+\.redis)", port: \d+', at('"127.0.0.1", port: {}'), text)
            return re.sub(r"([\w-]+\.redis):\d+", at("127.0.0.1:{}"), text)

        def at(form: str) -> Callable[[re.Match[str]], str]:
            return lambda found: form.format(hosts[found[1]])

        def prepare(reader: Reader) -> None:
            for block in Page(PRODUCTION).blocks:
                if block.file:
                    (reader.folder / block.file).write_text(here(block.text))

        def adapt(command: Command) -> Command:
            url = sentinels.sentinels[0].url
            text = command.text.replace('"$SENTINEL_URL"', url)
            return replace(adapted(command), text=here(text))

        read(shop, Page(PRODUCTION), adapt, prepare)


def test_the_workers_of_the_tests_have_the_options_of_the_page() -> None:
    shown = "".join(block.text for block in blocks("js") if block.page == PRODUCTION)
    used = (CLIENTS / "connections.mjs").read_text()
    options = set(re.findall(r"\b(?!port)\w+: (?:true|null|[\d_]+)\b", shown))
    assert len(options) == 6
    assert {each for each in options if each not in used} == set()


@pytest.fixture
def fresh(open_shop: Parts, tmp_path: Path) -> Iterator[Parts]:
    """Start an API server without the operator; the programs are those of the demo."""
    (tmp_path / "bin").symlink_to(open_shop.folder / "bin")
    with ApiServer(tmp_path) as api:
        yield replace(open_shop, folder=tmp_path, api=api)


def test_the_commands_for_the_chart_install_upgrade_and_uninstall_it(fresh: Parts) -> None:
    def here(command: Command) -> Command:
        changes = {
            r"\bmake\b": "make --dry-run",
            # The test API server already has the roles of deploy/rbac.yaml, with the same names.
            r"^helm install\b": "helm install --take-ownership",
            # No pods run here; tests/deploy/test_release.py does what the pod of the hook does.
            r"^helm uninstall\b": "helm uninstall --no-hooks --ignore-not-found",
            r"^kubectl wait --for=condition=complete": "kubectl wait --for=create",
        }
        return changed(command, changes)

    read(fresh, Page(INSTALLING), here)
    assert "jobgroups.dev" not in fresh.api.kubectl("get", "crds,clusterroles", "-o", "name")


def problems(parts: Parts, reader: Reader) -> None:
    """Create a group without workers, one whose undo failed, and one without a resource."""
    running, failed, alone = problem_orders()
    resources = Resources(parts.api, "default")
    resources.apply(running, failed)
    resources.reaches("order-125", state="ACTIVE")
    resources.reaches("order-126", state="FAILED_COMPENSATION")
    order = shlex.quote(json.dumps(alone))
    said = reader.type(f"python -m jobgroup add - --id order-127 --wait <<< {order}")
    assert "FAILED_COMPENSATION" in said


def new_queue(parts: Parts, _: Reader) -> None:
    """Delete what shows that the queue of undos was used by the pages before."""
    keys = [f"bull:refunds:{name}" for name in ("meta", "events")]
    with Redis.from_url(parts.redis.url) as redis:
        redis.delete(*keys)


# What must be done before the commands of a page run.
BEFORE: dict[str, Callable[[Parts, Reader], None]] = {
    "docs/runbooks.md": problems,
    "docs/workerpool.md": new_queue,
}


def test_a_block_runs_every_command_that_a_sentence_mentions() -> None:
    """Up to three words only name a command; readers copy longer ones."""
    typed = [command.text for page in PAGES for command in page.commands]
    tools = r"([A-Z_\d]+=\S+ )*(docker|helm|kopf|kubectl|make|npm|pip|python|redis-cli) "
    untyped = [
        f"{page}: {code}"
        for page in PAGES
        for code in page.mentions
        if re.match(tools, code) and len(code.split()) > 3
        if not any(text.startswith(code) for text in typed)
    ]
    assert untyped == []


def commands(pattern: str) -> dict[str, list[re.Match[str]]]:
    """Return the commands of all pages that match, by their pages."""
    found = {page.path: [re.search(pattern, each.text) for each in page.commands] for page in PAGES}
    return {page: [each for each in of if each] for page, of in found.items() if any(of)}


def test_the_image_that_is_built_and_pushed_is_the_one_that_is_installed() -> None:
    pushed = commands(r"^make push REGISTRY=(\S+)$")
    loaded = commands(r"^make load$")
    assert pushed.keys() == {"README.md", INSTALLING}
    assert loaded.keys() == {"README.md"}
    registries = {page: [each[1] for each in pushes] for page, pushes in pushed.items()}
    for page, names in registries.items():
        targets = [*[("load", {})] * (page in loaded), *[("push", {"REGISTRY": n}) for n in names]]
        installs = commands(r"^helm install (.+)$")[page]
        assert len(installs) == len(targets)
        for install, (target, env) in zip(installs, targets, strict=True):
            assert images_of(install[1]) <= make_image.recipes(target, env).keys()


def images_of(arguments: str) -> set[str]:
    """Return the images of the pods that `helm install` creates with these arguments."""
    objects = yaml.safe_load_all(helm("template", *shlex.split(arguments)))
    specs = [each["spec"] for each in objects if "template" in each.get("spec", {})]
    return {spec["template"]["spec"]["containers"][0]["image"] for spec in specs}


def test_the_images_that_the_example_builds_are_those_that_its_pods_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Check also that the end-to-end tests build them from the same files."""
    (builds,) = commands(r"^docker build -f (\S+) -t (\S+) \.$").values()
    manifests = "".join(path.read_text() for path in ORDERS.glob("*.yaml"))
    images = set(re.findall(r"image: (\S+)", manifests))
    assert {each[2] for each in builds} == images
    assert images < make_image.recipes("load", {}).keys()
    files = []

    class Builder:
        """Has every base image, and records what it is asked to build."""

        def has(self, image: str) -> bool:
            return not image.startswith("jobgroup/workers")

        def build(self, context: Path, dockerfile: str, tag: str, **_: str) -> None:
            files.append(dockerfile)

    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / "cache"))
    (nothing := tmp_path / "nothing").mkdir()
    monkeypatch.setattr(project, "wheels", lambda _: nothing)
    monkeypatch.setattr(project, "npm_cache", lambda _: nothing)
    builder: Any = Builder()
    project.python_workers(builder)
    project.node_workers(builder)
    assert files == [each[1] for each in builds]


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_manifests_are_accepted(open_shop: Parts, block: Block) -> None:
    for document in yaml.safe_load_all(block.text):
        if "kind" not in document:
            assert render(document, redis={})  # values of the chart
            continue
        if document["kind"] in FOREIGN:
            continue
        space = document["metadata"].get("namespace", "default")
        open_shop.api.kubectl(
            "apply", "-f", "-", stdin=json.dumps(NAMESPACE | {"metadata": {"name": space}})
        )
        open_shop.api.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(document))


def test_the_policy_restricts_a_namespace_to_its_own_queues(shop: Parts) -> None:
    (policy,) = [block.text for block in blocks("yaml") if block.file == "queues.yaml"]
    resources = Resources(shop.api, "default")

    def refusal(*queues: str, undo: str = "", end: str = "") -> str:
        jobs = [{"name": queue, "queueName": queue} for queue in queues]
        undos = {queues[0]: {"name": "undo", "queueName": undo}} if undo else None
        ends = {"onEnd": [{"name": "told", "queueName": end}]} if end else {}
        order = json.dumps(manifest("order", *jobs, undos=undos, **ends))
        try:
            resources.kubectl("create", "--dry-run=server", "-f", "-", stdin=order)
        except KubectlError as error:
            return str(error)
        return ""

    shop.api.kubectl("apply", "-f", "-", stdin=policy)
    try:
        sentence = "the name of a queue begins with the namespace and a dot"
        wait_for(lambda: sentence in refusal("payments"))
        assert sentence in refusal("default.payments", "default-two.payments")
        assert refusal("default.payments", "default.stock") == ""
        assert sentence in refusal("default.payments", undo="shop.refunds")
        assert sentence in refusal("default.payments", end="shop.alerts")
        assert refusal("default.payments", undo="default.refunds", end="default.alerts") == ""
    finally:
        shop.api.kubectl("delete", "-f", "-", stdin=policy)
        wait_for(lambda: refusal("payments") == "")


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_valid(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", [b for b in blocks("python") if not b.file], ids=str)
def test_python_runs(shop: Parts, block: Block) -> None:
    assert LOCAL in block.text
    with Reader(shop.folder, on(shop), Page(block.page)) as reader:
        (reader.folder / "snippet.py").write_text(block.text.replace(LOCAL, shop.redis.url))
        printed = reader.type("python snippet.py")
    assert "state='COMPLETED'" in printed


@pytest.mark.parametrize("block", blocks("mermaid"), ids=str)
def test_diagrams_are_simple_and_name_existing_scripts(block: Block) -> None:
    first, *arrows = block.text.splitlines()
    assert first == "flowchart LR"
    place = r"\w+(\[[\w ,]+\])?"
    assert [
        line for line in arrows if not re.fullmatch(rf"  {place} -->\|[\w,:. -]+\| {place}", line)
    ] == []
    assert all((FOLDER / name).exists() for name in re.findall(r"\w+\.lua", block.text))


def test_the_design_names_every_decision() -> None:
    text = (ROOT / "docs/design.md").read_text()
    named = re.findall(r"\[(\d+)\s[^]]+\]\(adr/(\S+)\)", text)
    kept = sorted(path.name for path in (ROOT / "docs/adr").iterdir())
    assert named == [(str(int(name[:4])), name) for name in kept]


def test_the_tree_in_the_design_page_exists() -> None:
    (tree,) = [block for block in blocks("") if block.page == "docs/design.md"]
    parents = [ROOT]
    for line in tree.text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        path = parents[depth] / line.split()[0]
        assert path.exists(), line
        parents[depth + 1 :] = [path]


def test_the_tree_in_the_design_page_lists_every_package() -> None:
    (tree,) = [block for block in blocks("") if block.page == "docs/design.md"]
    listed = set(re.findall(r"^ *([\w.]+)/", tree.text, re.MULTILINE))
    folders = (ROOT / "operator/handlers", ROOT / "operator/jobgroup", ROOT / "testbed")
    packages = {init.parent.name for each in folders for init in each.glob("*/__init__.py")}
    assert packages - listed == set()


def test_the_paths_in_the_change_table_exist() -> None:
    text = (ROOT / "docs/design.md").read_text().partition("## Where a change goes")[2]
    paths = re.findall(r"`((?:\.\./|handlers/|jobgroup/|lua/)[^`<>]*)`", text.partition("\n## ")[0])
    assert len(paths) > 25
    assert [path for path in paths if not (ROOT / "operator" / path).exists()] == []


def test_the_workers_of_the_example_print_what_its_page_shows(shop: Parts) -> None:
    (text,) = [block for block in blocks("") if block.page == EXAMPLE]
    shop.api.kubectl("apply", "-f", str(ORDERS / "order-refused.yaml"))
    shop.api.kubectl("wait", "--for=condition=Finished", "jobgroups", "--all", "--timeout=120s")
    said = "".join(worker.log.read_text() for worker in shop.workers).splitlines()
    assert [line for line in text.text.splitlines() if line not in said] == []
