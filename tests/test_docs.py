"""The README and the docs are true: what they have their reader type prints what they say.

Every fenced block is claimed by its language; one that nothing here knows is refused. The pages are
read on the parts of the demo: an API server, Redis, the operator and the example's workers.
"""

import json
import re
from dataclasses import replace

import pytest
import yaml

from jobgroup.scripts import FOLDER
from testbed.apiserver import KubectlError
from testbed.demo.parts import Parts
from testbed.examples import ORDERS
from testbed.pages import ROOT, Block, Command, Page, blocks, pages
from testbed.reader import Reader
from testbed.resources import Resources, manifest
from testbed.waiting import wait_for

# What is done with the blocks of each language, in the tests below.
LANGUAGES = {"console", "yaml", "json", "python", "js", "mermaid", ""}
# The folder in which a page is read, if not the project's.
HOMES = {"docs/command-line.md": ORDERS, "examples/order-fulfilment/README.md": ORDERS}
# The workers that stand on a page.
WORKERS = {"docs/guide.md": ["flights.mjs", "hotels.py"]}
# Pages whose numbers are those of another day.
NUMBERS = {"docs/workerpool.md"}
ENDLESS = re.compile(r"jobgroup drive(?! --once)|--watch")
# Commands that need more than is here, and the test that does the same.
ELSEWHERE = {
    r"^helm (upgrade|uninstall) ": "tests/deploy/test_release.py",
    r"kopf run": "testbed/operators.py",
    r"npm install": "tests/test_examples.py",
    r"docker build": "testbed/own_images.py",
    r"docker run": "tests/e2e/test_image.py",
    r"workers\.yaml": "tests/e2e/test_order_fulfilment.py",
}
# Kinds of tools that are not installed here.
FOREIGN = {"Kustomization"}
# Blocks of no language: a map of the folders, what workers say, and what a driver says. Here that
# may be the operator, which says it elsewhere; tests/jobgroup/test_main_following.py has the lines.
EXAMPLE = "examples/order-fulfilment/README.md"
TEXTS = {"README.md", EXAMPLE, "docs/command-line.md"}

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace"}
LOCAL = "redis://127.0.0.1:6379/0"

PAGES = pages()


def is_elsewhere(command: str) -> bool:
    return any(re.search(pattern, command) for pattern in ELSEWHERE)


def test_every_block_is_claimed() -> None:
    strange = [
        str(each) for page in PAGES for each in page.blocks if each.language not in LANGUAGES
    ]
    assert strange == []
    assert {each.page for each in blocks("")} <= TEXTS
    assert {
        str(each) for each in blocks("js") if each.file not in WORKERS.get(each.page, ())
    } == set()
    assert all((ROOT / file).exists() for file in ELSEWHERE.values())


def leads_somewhere(page: Page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = ((ROOT / page.path).parent / path).resolve() if path else ROOT / page.path
    if re.match(r"https?://", link):
        return True
    return target.exists() and (not anchor or anchor in Page(str(target)).anchors)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Page) -> None:
    broken = [link for link in page.links if not leads_somewhere(page, link)]
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.commands], ids=str)
def test_what_a_page_has_its_reader_type_prints_what_it_says(shop: Parts, page: Page) -> None:
    home, any_number = HOMES.get(page.path, ROOT), page.path in NUMBERS
    with Reader(shop, page, home, any_number) as reader:
        for file in WORKERS.get(page.path, ()):
            reader.work(file)
        for command in page.commands:
            if is_elsewhere(command.text):
                continue
            if ENDLESS.search(command.text):
                reader.leave_running(command)
            else:
                reader.follow(adapted(command))


def adapted(command: Command) -> Command:
    """Have make and helm say what they would do, which other tests do, and kubectl be patient."""
    text = re.sub(r"\bmake\b", "make --dry-run", command.text, count=1)
    text = re.sub(r"^helm install\b", "helm template", text)
    return replace(command, text=re.sub(r"^kubectl wait\b", "kubectl wait --timeout=120s", text))


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_manifests_are_accepted(open_shop: Parts, block: Block) -> None:
    for document in yaml.safe_load_all(block.text):
        if document["kind"] in FOREIGN:
            continue
        space = document["metadata"].get("namespace", "default")
        open_shop.api.kubectl(
            "apply", "-f", "-", stdin=json.dumps(NAMESPACE | {"metadata": {"name": space}})
        )
        open_shop.api.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(document))


def test_the_policy_keeps_a_namespace_to_its_own_queues(shop: Parts) -> None:
    (policy,) = [block.text for block in blocks("yaml") if block.file == "queues.yaml"]
    resources = Resources(shop.api, "default")

    def refusal(*queues: str) -> str:
        jobs = [{"name": queue, "queueName": queue} for queue in queues]
        order = json.dumps(manifest("order", *jobs))
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
    finally:
        shop.api.kubectl("delete", "-f", "-", stdin=policy)
        wait_for(lambda: refusal("payments") == "")


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_can_be_read(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", [b for b in blocks("python") if not b.file], ids=str)
def test_python_runs(shop: Parts, block: Block) -> None:
    assert LOCAL in block.text
    with Reader(shop, Page(block.page)) as reader:
        (reader.folder / "snippet.py").write_text(block.text.replace(LOCAL, shop.redis.url))
        printed = reader.type("python snippet.py")
    assert "state='COMPLETED'" in printed


@pytest.mark.parametrize("block", blocks("mermaid"), ids=str)
def test_pictures_are_simple_and_name_what_there_is(block: Block) -> None:
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


def test_the_map_of_the_folders_is_right() -> None:
    (folders,) = [block for block in blocks("") if block.page == "README.md"]
    above = ROOT
    for line in folders.text.splitlines():
        name = line.split()[0]
        above = above if line.startswith(" ") else ROOT / name
        assert (above / name if line.startswith(" ") else above).exists(), line


def test_the_workers_of_the_example_say_what_its_page_says(shop: Parts) -> None:
    (text,) = [block for block in blocks("") if block.page == EXAMPLE]
    shop.api.kubectl("apply", "-f", str(ORDERS / "order-refused.yaml"))
    shop.api.kubectl("wait", "--for=condition=Finished", "jobgroups", "--all", "--timeout=120s")
    said = "".join(worker.log.read_text() for worker in shop.workers).splitlines()
    assert [line for line in text.text.splitlines() if line not in said] == []
