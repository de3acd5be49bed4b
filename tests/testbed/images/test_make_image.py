"""`make image` and its siblings: builder, names, the content of the build's context, and errors.

Scripts replace docker and buildah, and record their calls. The end-to-end tests build the image and
check its content.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jobgroup import __version__
from testbed.build import binaries
from testbed.cluster import engine
from testbed.cluster.engine import Engine
from testbed.images import make_image, project

NAME = f"jobgroup-operator:{__version__}"
# It has the published images only. A build stores the names of all files in its context.
TOOL = """
case "$1 $2" in
  "info "*) test -n "$ENGINE" ;;
  "image inspect"|"inspect --type=image")
    case "$3" in --format*) echo "map[]" ;; jobgroup/*) false ;; esac ;;
  "build "*) for context; do :; done; (cd "$context" && find . -type f) > "$FILES" ;;
  "images --format={{.Size}}") echo 52MB; echo 52MB ;;
esac"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty cache, and replace the download of wheels; return the log of the calls."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "some.whl").touch()
    monkeypatch.setattr(project, "wheels", lambda lock: wheels)
    monkeypatch.setattr(project, "npm_cache", lambda lock: wheels)
    monkeypatch.setattr(project, "npm_registry", lambda: "https://npm.shop")
    monkeypatch.setattr(make_image, "ROOT", tmp_path)
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FILES", str(tmp_path / "files"))
    for name in ("IMAGE", "BASE", "BUILDER", "ENGINE", "REGISTRY", "CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    # PATH has no other folder, because the machine may have docker or buildah.
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "calls"


@pytest.fixture
def tool(calls: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a replacement of a program on PATH."""

    def make(name: str, runs: bool = True) -> None:
        program = calls.with_name("bin") / name
        program.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "{name} $*" >> {calls}\n{TOOL}\n')
        program.chmod(0o755)
        if name == "docker" and runs:
            monkeypatch.setenv("ENGINE", "yes")

    return make


def test_docker_comes_first_and_the_build_has_no_network(
    tool: Callable[..., None], calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool("docker")
    tool("buildah")
    assert make_image.main() == 0
    assert capsys.readouterr().out == f"{NAME}: 52MB, built with docker\n"
    said = calls.read_text()
    assert "buildah" not in said
    assert "docker build --network=none" in said
    assert "--build-arg=BASE=python:3.11-slim-bookworm" in said
    assert f" {NAME}\n" in said


def test_buildah_is_enough(
    tool: Callable[..., None], calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool("docker", runs=False)
    tool("buildah")
    assert make_image.main() == 0
    assert capsys.readouterr().out.endswith("built with buildah\n")
    assert "buildah build --network=none" in calls.read_text()


def test_the_context_contains_what_ships_and_nothing_else(
    tool: Callable[..., None], tmp_path: Path
) -> None:
    tool("docker")
    assert make_image.main() == 0
    files = (tmp_path / "files").read_text().split()
    own = [file for file in files if not file.startswith("./operator/")]
    assert sorted(own) == [
        "./Dockerfile",
        "./deploy/image/gather.py",
        "./locks/runtime.txt",
        "./wheels/some.whl",
    ]
    assert "./operator/main.py" in files
    assert not [file for file in files if "__pycache__" in file]


def test_name_and_base_can_be_chosen(
    tool: Callable[..., None], calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("docker")
    monkeypatch.setenv("IMAGE", "mine/operator:7")
    monkeypatch.setenv("BASE", "mine/python:3.11")
    assert make_image.main() == 0
    assert "--build-arg=BASE=mine/python:3.11" in calls.read_text()
    assert " mine/operator:7\n" in calls.read_text()


def test_a_temporary_engine_leaves_a_file(
    tool: Callable[..., None],
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tool("docker", runs=False)

    class Started:
        def __enter__(self) -> Engine:
            return Engine(os.environ)

        def __exit__(self, *failure: object) -> None:
            pass

    monkeypatch.setattr(engine, "started", Started)
    assert make_image.main() == 0
    archive = calls.with_name("build") / f"jobgroup-operator-{__version__}.tar"
    assert f"docker save --output {archive} {NAME}" in calls.read_text()
    assert f"docker load --input {archive}" in capsys.readouterr().out


def test_every_image_gets_the_name_that_the_chart_and_the_example_use(
    tool: Callable[..., None], calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool("docker")
    assert make_image.main("images") == 0
    names = [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [NAME, "redis:7", "order-workers:node", "order-workers:python"]
    tagged = [line.split()[-1] for line in calls.read_text().splitlines() if " tag " in line]
    assert tagged == [NAME, "order-workers:node", "order-workers:python"]


@pytest.mark.parametrize("registry", ["registry.shop", "registry.shop/"])
def test_every_image_is_pushed_to_the_registry(
    tool: Callable[..., None], calls: Path, monkeypatch: pytest.MonkeyPatch, registry: str
) -> None:
    tool("docker")
    monkeypatch.setenv("REGISTRY", registry)
    assert make_image.main("push") == 0
    said = calls.read_text().splitlines()
    pushed = [line.split()[-1] for line in said if line.startswith("docker push ")]
    others = ["redis:7", "order-workers:node", "order-workers:python"]
    assert pushed == [f"registry.shop/{name}" for name in (NAME, *others)]


def test_a_push_needs_a_registry(
    tool: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    tool("docker")
    assert make_image.main("push") == 2
    sentence = "make push: REGISTRY is not set; name yours: make push REGISTRY=registry.shop\n"
    assert capsys.readouterr().err == sentence


@pytest.fixture
def clusters(calls: Path, tool: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide an engine with the kind cluster `shop`."""
    for name in ("docker", "kind", "kubectl"):
        tool(name)
    answers = {"kind": "echo shop", "kubectl": 'echo "$CONTEXT"'}
    for name, answer in answers.items():
        program = calls.with_name("bin") / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{answer}\n')
    monkeypatch.setattr(binaries, "find", lambda name: {name: calls.with_name("bin") / name})


@pytest.mark.usefixtures("clusters")
@pytest.mark.parametrize(("context", "named"), [("kind-shop", ""), ("production", "shop")])
def test_every_image_is_loaded_into_the_kind_cluster(
    calls: Path, monkeypatch: pytest.MonkeyPatch, context: str, named: str
) -> None:
    monkeypatch.setenv("CONTEXT", context)
    monkeypatch.setenv("CLUSTER", named)
    assert make_image.main("load") == 0
    (loaded,) = [line for line in calls.read_text().splitlines() if "docker-image" in line]
    images = f"{NAME} redis:7 order-workers:node order-workers:python"
    assert loaded == f"kind load docker-image --name shop {images}"


@pytest.mark.usefixtures("clusters")
@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ("production", "The current context is production, which is not a kind cluster; "),
        ("kind-bank", "There is no kind cluster bank; create it: kind create cluster --name bank"),
    ],
)
def test_images_are_loaded_into_no_other_cluster(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    context: str,
    sentence: str,
) -> None:
    monkeypatch.setenv("CONTEXT", context)
    assert make_image.main("load") == 2
    assert capsys.readouterr().err.startswith(f"make load: {sentence}")


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("podman", "make image: BUILDER is 'podman'; it can be docker or buildah.\n"),
        ("buildah", "make image: There is no buildah on the PATH; install it, or use docker.\n"),
    ],
)
def test_a_builder_that_is_missing_is_named(
    tool: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wish: str,
    sentence: str,
) -> None:
    tool("docker")
    monkeypatch.setenv("BUILDER", wish)
    assert make_image.main() == 2
    assert capsys.readouterr().err == sentence
