"""The cluster and the images of the end-to-end tests, and the clean-up after errors.

These tests need no engine: scripts replace docker, kind and kubectl, and record their calls.
"""

import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.build import binaries
from testbed.build.cache import cache_dir
from testbed.cluster import clean, e2e, engine, installation, kind
from testbed.cluster.engine import Engine
from testbed.cluster.kind import Cluster, TestImages
from testbed.images import base, builders
from testbed.images.builders import Docker
from testbed.support.errors import Unavailable

ProgramMaker = Callable[[str, str], None]

# Its images are files in a folder. `import` prints the id of an image without a name.
DOCKER = """
case "$1 $2" in
  "image inspect")
    case "$3" in
      --format*) echo "map[$LABELS]" ;;
      *) test -e "$IMAGES/$(echo "$3" | tr / _)" ;;
    esac ;;
  "pull --quiet") test -n "$REGISTRY" ;;
  import*) cat > /dev/null; ${IMPORT:-echo sha256:made} ;;
  tag*) : > "$IMAGES/$(echo "$3" | tr / _)" ;;
esac"""
IMAGES = {
    "E2E_IMAGE": "a:1",
    "E2E_REDIS_IMAGE": "b:2",
    "E2E_NODE_IMAGE": "c:3",
    "E2E_PYTHON_IMAGE": "d:4",
}
KUBECTL = """
case "$1 $2" in
  "config current-context") echo kind-mine ;;
  "config view") echo "one context: $7" ;;
esac"""


def test_the_page_for_contributors_names_the_variable_of_every_image() -> None:
    page = ROOT / "CONTRIBUTING.md"
    assert set(re.findall(r"E2E_\w*IMAGE", page.read_text())) == set(kind.IMAGE_VARIABLES)


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    path = tmp_path / "calls"
    path.touch()
    return path


@pytest.fixture
def programs(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramMaker:
    """Put replacements of programs first on PATH, and set an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "images").mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IMAGES", str(tmp_path / "images"))
    monkeypatch.setattr(binaries, "find", lambda name: {name: folder / name})

    def make(name: str, body: str) -> None:
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{body}\n')
        (folder / name).chmod(0o755)

    return make


@pytest.fixture
def docker(programs: ProgramMaker, monkeypatch: pytest.MonkeyPatch) -> Docker:
    """Return an engine with an unreachable registry, for root without namespaces."""
    programs("docker", DOCKER)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for module in (builders, base):
        monkeypatch.setattr(module, "sandboxed", lambda *command: list(command))
    return Docker(Engine(os.environ))


def obtain(docker: Docker) -> str:
    def make(root: Path) -> None:
        root.mkdir()
        (root / "file").touch()

    return base.obtained(docker, "published:1", "made:1", ["CMD x"], make)


def verbs(calls: Path) -> list[str]:
    return [line.split()[1] for line in calls.read_text().splitlines()]


def test_an_image_of_a_registry_is_not_made(
    docker: Docker, monkeypatch: pytest.MonkeyPatch, calls: Path
) -> None:
    monkeypatch.setenv("REGISTRY", "yes")
    assert obtain(docker) == "published:1"
    assert "import" not in verbs(calls)


def test_an_image_is_made_once(docker: Docker, calls: Path) -> None:
    assert obtain(docker) == "made:1"
    assert verbs(calls).count("import") == 1
    calls.write_text("")
    assert obtain(docker) == "made:1"
    assert set(verbs(calls)) == {"image"}, "the second run must not pull or build"


@pytest.mark.parametrize(("labels", "wanted"), [("", "published:1"), (builders.LABEL, "made:1")])
def test_an_image_that_was_made_here_under_a_published_name_is_made_again(
    docker: Docker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, labels: str, wanted: str
) -> None:
    monkeypatch.setenv("LABELS", labels)
    (tmp_path / "images/published:1").touch()
    assert obtain(docker) == wanted


def test_an_incomplete_image_gets_no_tag(
    docker: Docker, monkeypatch: pytest.MonkeyPatch, calls: Path
) -> None:
    monkeypatch.setenv("IMPORT", "false")
    with pytest.raises(Unavailable, match=r"^Importing made:1 failed"):
        obtain(docker)
    assert "tag" not in verbs(calls)
    assert not (cache_dir() / "scratch").exists()
    monkeypatch.delenv("IMPORT")
    assert obtain(docker) == "made:1"
    assert "tag" in verbs(calls)


def test_an_incomplete_archive_gets_no_tag(
    docker: Docker, programs: ProgramMaker, calls: Path
) -> None:
    programs("tar", "echo half; exit 1")
    with pytest.raises(Unavailable, match=r"^Importing made:1 failed"):
        obtain(docker)
    assert "docker import" in calls.read_text()
    assert "docker tag" not in calls.read_text()


def test_a_disk_that_fills_up_is_named_and_nothing_is_left(
    docker: Docker, programs: ProgramMaker
) -> None:
    programs("tar", "echo 'tar: -: Cannot write: No space left on device' >&2; exit 2")
    with pytest.raises(Unavailable, match=r"^Importing made:1 failed because the disk is full"):
        obtain(docker)
    assert not (cache_dir() / "scratch").exists()


def test_an_image_is_not_begun_on_a_full_disk(
    docker: Docker, monkeypatch: pytest.MonkeyPatch, calls: Path
) -> None:
    monkeypatch.setattr(base, "ROOT_GIGABYTES", 10**9)
    with pytest.raises(Unavailable, match="this step needs about"):
        base.redis(docker)
    assert "import" not in verbs(calls)


def test_the_files_of_a_killed_run_are_removed(docker: Docker) -> None:
    stale = cache_dir() / "scratch" / "root"
    stale.mkdir(parents=True)
    (stale / "half").touch()
    assert obtain(docker) == "made:1"


def test_without_registry_and_root_the_error_says_what_to_do(
    docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="check the network, or run as root"):
        obtain(docker)


def test_a_fingerprint_is_of_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "a").write_text("1")
    before = base.fingerprint(folder, "x")
    (folder / "__pycache__" / "a.pyc").write_text("compiled")
    assert base.fingerprint(folder, "x") == before
    assert base.fingerprint(folder, "y") != before
    (folder / "a").rename(folder / "b")
    renamed = base.fingerprint(folder, "x")
    (folder / "b").write_text("2")
    assert len({before, renamed, base.fingerprint(folder, "x")}) == 3


def test_wheels_do_not_depend_on_the_python_that_downloads_them(
    programs: ProgramMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        base,
        "run",
        lambda *command, doing: asked.append(
            Path(command[command.index("--requirement") + 1]).read_text()
        ),
    )
    lock = tmp_path / "lock.txt"
    lock.write_text("old==1 ; python_full_version < '3.11.3' \\\n    --hash=sha256:1\nnew==2\n")
    base.wheels(lock)
    assert asked == ["old==1 \\\n    --hash=sha256:1\nnew==2\n"]


def test_an_incomplete_download_of_wheels_is_not_used(
    programs: ProgramMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("some==1\n")

    def cut_short(*command: str | Path, doing: str) -> str:
        (Path(command[-1]) / "half.whl").touch()
        raise Unavailable("no network")

    with monkeypatch.context() as patch:
        patch.setattr(base, "run", cut_short)
        with pytest.raises(Unavailable, match="no network"):
            base.wheels(lock)
    monkeypatch.setattr(base, "run", lambda *command, doing: "")
    assert not list(base.wheels(lock).glob("*.whl"))


# Its clusters are lines of a file.
KIND = """
case "$1 $2" in
  "get clusters") cat "$CLUSTERS" ;;
  "create cluster") echo "$4" >> "$CLUSTERS" ;;
  "delete cluster") sed -i "/^$4$/d" "$CLUSTERS" ;;
esac"""


@pytest.fixture
def clusters(programs: ProgramMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file with the names of the kind clusters; there is none yet."""
    path = tmp_path / "clusters"
    path.touch()
    monkeypatch.setenv("CLUSTERS", str(path))
    for name in ("docker", "kubectl"):
        programs(name, "")
    programs("kind", KIND)
    return path


def create(keep: bool = False) -> None:
    with kind.created(Engine(os.environ), "node:1", keep):
        pass


def test_a_cluster_is_deleted_after_its_run(clusters: Path, calls: Path) -> None:
    with kind.created(Engine(os.environ), "node:1") as made:
        assert made.kind_name == kind.NAME
        assert made.kubeconfig.parent == cache_dir()
        said = verbs(calls)
        assert said == ["get", "delete", "create", "--kubeconfig", "exec", "--kubeconfig"]
        assert clusters.read_text() == f"{kind.NAME}\n"
        assert kind.recorded() == [kind.NAME]
    assert clusters.read_text() == ""
    assert kind.recorded() == []


def test_the_cluster_of_a_killed_run_is_deleted_first(clusters: Path, calls: Path) -> None:
    clusters.write_text(f"{kind.NAME}\n")
    (cache_dir() / f"{kind.RECORD}{kind.NAME}").touch()
    create()
    assert verbs(calls)[:3] == ["get", "delete", "create"]


def test_a_kept_cluster_stays_until_it_is_removed(
    clusters: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(keep=True)
    sentence = "was kept. Remove it with `make e2e-clean`, or run the tests on it: KUBECONFIG=/"
    with pytest.raises(Unavailable, match=sentence):
        create()
    assert clusters.read_text() == f"{kind.NAME}\n"
    with kind.created(Engine(os.environ), "node:1", name="jobgroup-demo"):
        assert clusters.read_text() == f"{kind.NAME}\njobgroup-demo\n"
    assert clean.main() == 0
    assert capsys.readouterr().out == f"Deleted the cluster {kind.NAME}.\n"
    assert clusters.read_text() == ""
    create()


def test_a_cluster_that_no_run_created_is_not_deleted(
    clusters: Path, calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write_text(f"{kind.NAME}\n")
    with pytest.raises(Unavailable, match=f"delete it: kind delete cluster --name {kind.NAME}$"):
        create()
    assert clean.main() == 0
    assert capsys.readouterr().out == "There is no cluster to delete.\n"
    assert "delete" not in verbs(calls)


def test_the_private_engine_of_removed_clusters_is_stopped(
    clusters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(engine, "stop_kept", lambda: stopped.append(clusters.read_text()))
    create(keep=True)
    clusters.write_text(f"{kind.NAME}\nmine\n")
    assert clean.main() == 0
    assert stopped == []  # somebody's cluster runs in it
    clusters.write_text("")
    create(keep=True)
    assert clean.main() == 0
    assert stopped == [""]


@pytest.mark.parametrize("keep", [True, False])
def test_a_cluster_that_fails_is_deleted(programs: ProgramMaker, calls: Path, keep: bool) -> None:
    programs("kind", 'test "$1" != create || { echo "ERROR: no node" >&2; exit 1; }')
    sentence = "^Creating the cluster jobgroup-e2e failed: ERROR: no node"
    with (
        pytest.raises(Unavailable, match=sentence),
        kind.created(Engine(os.environ), "node:1", keep),
    ):
        pass
    assert verbs(calls) == ["get", "delete", "create", "delete"]


def test_a_context_that_is_not_the_current_one_is_an_error(programs: ProgramMaker) -> None:
    programs("kubectl", KUBECTL)
    with pytest.raises(Unavailable, match=r"^The current context is kind-mine, not production;"):
        kind.existing("production")
    assert not (cache_dir() / "kubeconfig-existing").exists()


@pytest.mark.parametrize("context", [None, ""])
def test_an_existing_cluster_must_be_named(context: str | None) -> None:
    with pytest.raises(Unavailable, match="needs E2E_CONTEXT"):
        kind.existing(context)


def test_the_tests_get_a_private_copy_of_the_one_context(programs: ProgramMaker) -> None:
    programs("kubectl", KUBECTL)
    found = kind.existing("kind-mine")
    assert found.kind_name == "mine"
    assert found.kubeconfig.read_text() == "one context: kind-mine\n"
    assert stat.S_IMODE(found.kubeconfig.stat().st_mode) == 0o600


def test_named_images_are_used_as_they_are() -> None:
    found = kind.named_images(Cluster("production", Path("x")), IMAGES)
    assert found == TestImages("a:1", "b:2", "c:3", "d:4")
    assert found.environment == IMAGES


def test_a_kind_cluster_gets_images_made_here() -> None:
    assert kind.named_images(Cluster("kind-mine", Path("x")), {}) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "production is not a kind cluster"),
        ({"E2E_IMAGE": "a:1"}, "set all of them, or none"),
        ({**IMAGES, "E2E_REDIS_IMAGE": ""}, "E2E_REDIS_IMAGE is not set"),
    ],
)
def test_a_foreign_cluster_needs_all_images(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(Unavailable, match=sentence):
        kind.named_images(Cluster("production", Path("x")), given)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers that a run sets."""
    saved = {interrupt: signal.getsignal(interrupt) for interrupt in e2e.INTERRUPTS}
    yield
    for interrupt, handler in saved.items():
        signal.signal(interrupt, handler)


@pytest.mark.usefixtures("handlers", "programs")
class TestRun:
    """The output and the exit code of the whole command."""

    @pytest.fixture(autouse=True)
    def choose(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("E2E_CLUSTER", "E2E_CONTEXT", "KEEP"):
            monkeypatch.delenv(name, raising=False)

    def test_an_unknown_choice_is_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("E2E_CLUSTER", "minikube")
        assert e2e.main([]) == 2
        sentence = "E2E_CLUSTER is 'minikube'; it can be kind (the default) or existing.\n"
        assert capsys.readouterr().err == sentence

    def test_no_engine_is_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(Engine, "absence", lambda self: "down")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert e2e.main([]) == 2
        assert capsys.readouterr().err.count("\n") == 1

    def test_a_full_disk_is_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def full(keep: bool) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(engine, "started", full)
        assert e2e.main([]) == 2
        assert capsys.readouterr().err.startswith("The disk is full;")

    @pytest.mark.parametrize("keep", [True, False])
    def test_diagnostics_of_a_chart_that_cannot_be_installed_are_saved(
        self,
        programs: ProgramMaker,
        calls: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        keep: bool,
    ) -> None:
        for name in ("docker", "kind"):
            programs(name, "")
        programs("kubectl", 'case "$*" in *"get events"*) echo "no room for the pod" ;; esac')
        programs("helm", 'echo "Error: context deadline exceeded" >&2; exit 1')
        monkeypatch.setenv("HELM", "helm")
        monkeypatch.setenv("KEEP", str(int(keep)))
        monkeypatch.setenv("DOCKER_HOST", "unix:///mine")
        # The run changes these variables; monkeypatch restores them after the test.
        for name in ("KUBECONFIG", "KUBECACHEDIR", "E2E_KUBECTL", *IMAGES):
            monkeypatch.setenv(name, "")
        monkeypatch.delenv("E2E_FAILURES", raising=False)
        monkeypatch.setattr(kind, "made_images", lambda found: TestImages(*IMAGES.values()))
        assert e2e.main([]) == 2
        folder = cache_dir() / "e2e-failures" / "installing"
        said = capsys.readouterr()
        assert said.err.startswith("helm upgrade failed: Error: context deadline exceeded\n")
        assert said.err.endswith(f"Logs and events are in {folder}.\n")
        events = folder / installation.NAMESPACE / "events.txt"
        assert events.read_text() == "no room for the pod\n"
        # Diagnostics are saved before the cluster is deleted; with KEEP it is not deleted.
        called = calls.read_text().splitlines()
        deleted = [n for n, call in enumerate(called) if call.startswith("kind delete")]
        (asked,) = [n for n, call in enumerate(called) if "get events" in call]
        assert [n > asked for n in deleted] == ([False] if keep else [False, True])
        kubeconfig = cache_dir() / f"kubeconfig-{kind.NAME}"
        ways = [
            f"  export KUBECONFIG={kubeconfig} PATH={kind.program('kind').parent}:$PATH",
            "  export DOCKER_HOST=unix:///mine",
            f"  E2E_CLUSTER=existing E2E_CONTEXT=kind-{kind.NAME} make e2e",
            "  make e2e-clean",
        ]
        printed = [line for line in said.out.splitlines() if line.startswith("  ")]
        assert [line for line in printed if line.strip()[0].isalpha()] == (ways if keep else [])
        assert ("The cluster is kept." in said.out) == keep

    @pytest.mark.parametrize("installed", [True, False])
    def test_an_operator_of_an_earlier_run_stays(
        self, programs: ProgramMaker, monkeypatch: pytest.MonkeyPatch, installed: bool
    ) -> None:
        programs("kubectl", KUBECTL)
        removed: list[list[str]] = []
        for name, value in {
            "E2E_CLUSTER": "existing",
            "E2E_CONTEXT": "kind-mine",
            **IMAGES,
        }.items():
            monkeypatch.setenv(name, value)
        # The run changes these variables; monkeypatch restores them after the test.
        for name in ("KUBECONFIG", "KUBECACHEDIR"):
            monkeypatch.setenv(name, "")
        monkeypatch.setattr(installation, "refuse_others", lambda: ["a CRD"])
        monkeypatch.setattr(installation, "is_installed", lambda: installed)
        monkeypatch.setattr(installation, "remove", removed.append)
        monkeypatch.setattr(e2e, "_stories", lambda *_: 0)
        assert e2e.main([]) == 0
        assert removed == ([] if installed else [["a CRD"]])

    def test_a_cluster_of_others_is_refused_before_images_are_made(
        self,
        programs: ProgramMaker,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        programs("kubectl", KUBECTL)
        for name in IMAGES:
            monkeypatch.delenv(name, raising=False)
        for name, value in {"E2E_CLUSTER": "existing", "E2E_CONTEXT": "kind-mine"}.items():
            monkeypatch.setenv(name, value)
        for name in ("KUBECONFIG", "KUBECACHEDIR"):
            monkeypatch.setenv(name, "")

        def refuse() -> None:
            raise Unavailable("the cluster has objects of others")

        monkeypatch.setattr(installation, "refuse_others", refuse)
        monkeypatch.setattr(kind, "made_images", lambda _: pytest.fail("images were made"))
        monkeypatch.setattr(engine, "running", lambda: pytest.fail("an engine was asked for"))
        assert e2e.main([]) == 2
        assert capsys.readouterr().err == "the cluster has objects of others\n"

    def test_an_interrupt_ends_the_run_but_not_the_clean_up(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cleaned = []

        class Interrupted:
            def __enter__(self) -> None:
                pass

            def __exit__(self, *failure: object) -> None:
                signal.raise_signal(signal.SIGINT)
                cleaned.append(failure[0])

        monkeypatch.setattr(engine, "started", lambda keep: Interrupted())
        monkeypatch.setattr(base, "node", lambda found: signal.raise_signal(signal.SIGTERM))
        assert e2e.main([]) == 130
        assert cleaned == [KeyboardInterrupt]
        assert "nothing is left running" in capsys.readouterr().out
