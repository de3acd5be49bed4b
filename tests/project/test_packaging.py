"""The Python package: what the wheel and the sdist contain, and a saga run with the wheel alone."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testbed import ROOT
from testbed.images.project import copy
from testbed.servers.processes import leashed
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient, fails_for_good, returns
from testbed.support.waiting import PATIENCE_SECONDS

# What setuptools reads to build the package.
SOURCES = ("operator", "pyproject.toml", "README.md", "LICENSE")
RUNTIME = {"msgpack", "pydantic", "pyyaml", "redis[hiredis]"}
OPERATOR = {"aiohttp", "kopf", "prometheus-client"}
PREFIX = "bull"
Install = Callable[[Path | None], Path]
ORDER = """\
name: order
groupId: order-1
jobs:
- {name: charge, queueName: payments}
- {name: reserve, queueName: inventory}
compensation:
  charge: {name: refund}
"""
# Print which modules of the operator can be imported, then load every script.
PROBE = """
from importlib.util import find_spec
from jobgroup.store.scripts import FOLDER, load
names = "aiohttp", "handlers", "kopf", "kubernetes", "main", "prometheus_client"
print([name for name in names if find_spec(name)])
print(sorted(path.stem for path in FOLDER.glob("*.lua") if load(path.stem)))
"""


def build(kind: str, source: Path, target: Path) -> Path:
    """Call a PEP 517 or PEP 660 hook of setuptools, which needs no network, as a front end does."""
    hook = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", hook], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what the package is built from; a build writes beside its sources."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel without its record, which lists their hashes in any order."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {name: archive.read(name) for name in names}


def package_files(folder: Path) -> set[str]:
    """List the files of the package, those behind the link to the scripts included."""
    return {
        str(Path(parent, name).relative_to(folder))
        for parent, _, names in os.walk(folder / "jobgroup", followlinks=True)
        for name in names
    }


def requirements(wheel: Path) -> list[Requirement]:
    (text,) = [file for name, file in contents(wheel).items() if name.endswith("/METADATA")]
    return [Requirement(line) for line in message_from_bytes(text).get_all("Requires-Dist", [])]


def test_the_wheel_contains_the_package_with_its_scripts_and_nothing_else(
    source: Path, wheel: Path
) -> None:
    packed = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert packed == package_files(source / "operator")
    scripts = {str(path.relative_to(ROOT / "operator")) for path in ROOT.glob("operator/lua/**/*")}
    assert {f"jobgroup/{name}" for name in scripts if name.endswith(".lua")} <= packed


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        assert [member.name for member in archive if member.issym()] == []
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert contents(build("wheel", unpacked, tmp_path)) == contents(wheel)


def test_the_sdist_contains_only_what_the_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(member.name).parts[1:]) for member in archive if member.isfile()}
    generated = {"PKG-INFO", "setup.cfg"}
    assert {name.parts[0] for name in names} == {*SOURCES, *generated}
    inside = {name.parts[1] for name in names if name.parts[0] == "operator"}
    assert inside == {"jobgroup", "jobgroup.egg-info"}


def is_asked(requirement: Requirement, extra: str) -> bool:
    """Return whether an installer that was given this extra fetches the requirement."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_the_operator_needs_an_extra(wheel: Path) -> None:
    asked: dict[str, set[str]] = {"": set(), "operator": set()}
    for each in requirements(wheel):
        extras = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
        extra = next(name for name in asked if is_asked(each, name))
        asked[extra].add(each.name + extras)
    assert asked == {"": RUNTIME, "operator": OPERATOR}


def dependencies(wheel: Path) -> Iterator[str]:
    """List the distributions that an installer would choose for the wheel without extras."""
    seen: set[tuple[str, str]] = set()
    left = [(each, "") for each in requirements(wheel)]
    while left:
        requirement, extra = left.pop()
        if not is_asked(requirement, extra):
            continue
        for wanted in {"", *requirement.extras}:
            if (requirement.name, wanted) not in seen:
                seen.add((requirement.name, wanted))
                needs = distribution(requirement.name).requires or []
                left += [(Requirement(each), wanted) for each in needs]
                yield canonicalize_name(requirement.name)


def link_dependencies(wheel: Path, site: Path) -> None:
    """Put what the wheel asks for, and nothing else, into an environment, without a download."""
    ours = Path(sysconfig.get_path("purelib"))
    for name in set(dependencies(wheel)):
        files = distribution(name).files or []
        tops = {file.parts[0] for file in files} - {"..", "__pycache__"}
        for top in tops:
            (site / top).symlink_to(ours / top)


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Install:
    """Create an environment with a wheel and its dependencies, and return its programs' folder."""

    def create(package: Path | None) -> Path:
        venv = tmp_path / "venv"
        python = venv / "bin/python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        (site,) = venv.glob("lib/python*/site-packages")
        link_dependencies(wheel, site)
        if package:
            pip = [sys.executable, "-m", "pip", "--python", str(python)]
            pip += ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
            subprocess.run([*pip, package], check=True, env=environment())
        return python.parent

    return create


def environment(**env: str) -> dict[str, str]:
    """Return an environment that does not lead to the sources."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))
    }
    return {**kept, **env}


@pytest.mark.parametrize("form", ["wheel", "editable", "tree", "image"])
def test_every_form_of_the_package_finds_its_scripts_and_needs_no_operator(
    source: Path, wheel: Path, install: Install, tmp_path: Path, form: str
) -> None:
    package, env = None, environment()
    if form == "wheel":
        package = wheel
    elif form == "editable":
        package = build("editable", source, tmp_path)
    elif form == "tree":
        env = environment(PYTHONPATH=str(source / "operator"))
    else:
        # The image contains a copy in which the link to the scripts has become a folder.
        copy(source / "operator", tmp_path / "operator")
        assert not (tmp_path / "operator/jobgroup/lua").is_symlink()
        env = environment(PYTHONPATH=str(tmp_path / "operator"))
    done = subprocess.run(
        [install(package) / "python", "-c", PROBE],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, loaded = done.stdout.splitlines()
    # All other forms read operator/ itself, where the handlers lie beside the package.
    assert found == str([] if form == "wheel" else ["handlers", "main"])
    assert loaded == str(sorted(path.stem for path in ROOT.glob("operator/lua/*.lua")))


@pytest.mark.parametrize("program", ["jobgroup", "python -m jobgroup"])
async def test_an_installed_wheel_runs_a_saga(
    wheel: Path, install: Install, tmp_path: Path, program: str
) -> None:
    first, *rest = program.split()
    command = leashed([str(install(wheel) / first), *rest])
    (tmp_path / "order.yaml").write_text(ORDER)
    pipe = asyncio.subprocess.PIPE
    with RedisServer(tmp_path) as redis:
        env = environment(REDIS_URL=redis.url, BULLMQ_PREFIX=PREFIX)

        async def run(*args: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *command, *args, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe
            )

        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            await StockClient.start("bullmq6", redis.url, PREFIX) as worker,
        ):
            await worker.work("payments", {"charge": returns(1)})
            await worker.work("payments:compensation", {"refund": returns(None)})
            driver = await run("drive")
            assert driver.stderr
            assert b"driving" in await driver.stderr.readline()
            adding = await run("add", "order.yaml", "--wait")
            await worker.heard("completed", name="charge")
            await worker.work("inventory", {"reserve": fails_for_good("no stock")})
            printed, complaints = await adding.communicate()
            driver.send_signal(signal.SIGTERM)
            driven, _ = await driver.communicate()
    ended = "order-1 order FAILED: 1/2 completed, 1 failed, 1/1 undone (order-1-1: no stock)"
    assert complaints == b""
    assert printed.decode().splitlines()[-1] == ended
    assert (adding.returncode, driver.returncode) == (1, 0)
    assert driven.decode().splitlines()[-1].endswith(ended)
