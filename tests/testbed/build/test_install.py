"""`make install`: what it says, and that it never takes half an installation for a whole one."""

import shutil
from pathlib import Path

import pytest

from testbed import binaries, install, lock
from testbed.errors import Unavailable
from testbed.stock import CLIENTS


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of the stock workers' folder with nothing installed in it."""
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(CLIENTS / name, tmp_path)
    monkeypatch.setattr(install, "CLIENTS", tmp_path)
    return tmp_path


def test_half_an_installation_is_finished(clients: Path) -> None:
    (clients / "node_modules").mkdir()
    assert install.install_workers() == "installed"
    assert (clients / "node_modules" / "bullmq5" / "package.json").exists()
    assert install.install_workers() == "there already"


def test_a_changed_lock_is_installed_anew(clients: Path) -> None:
    (clients / "node_modules").mkdir()
    (clients / "node_modules" / ".installed-lock").write_text("an older one")
    assert install.install_workers() == "installed"


def test_no_registry_in_reach_is_said_in_a_sentence(
    clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_offline", "true")
    monkeypatch.setenv("npm_config_cache", str(clients / "empty"))
    with pytest.raises(Unavailable, match="check that this machine reaches an npm registry"):
        install.install_workers()
    assert not (clients / "node_modules" / ".installed-lock").exists()


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (Unavailable("there is no moon"), 2, "make install: there is no moon"),
        (KeyboardInterrupt(), 130, "run it again and it goes on from here"),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    def step() -> str:
        raise error

    monkeypatch.setattr(install, "STEPS", {"moon": step})
    assert install.main() == code
    assert sentence in capsys.readouterr().err
    monkeypatch.setattr(install, "DEMO_STEPS", {"moon": step})
    assert install.main("demo") == code
    assert sentence.replace("make install:", "make demo:") in capsys.readouterr().err


def test_a_demo_needs_less_than_tests_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[set[str]] = []

    def find(*names: str) -> dict[str, Path]:
        asked.append(set(names))
        return {name: Path("/bin") / name for name in names}

    monkeypatch.setattr(binaries, "find", find)
    monkeypatch.setenv("HELM", "/bin/true")
    assert install.main("demo") == 0
    # Whoever has all of it sees the demo and nothing else.
    assert capsys.readouterr().out == ""
    assert install.main() == 0
    said = capsys.readouterr().out
    assert "stock BullMQ workers: there already" in said
    assert "helm: /bin/true" in said
    assert asked[1] - asked[0] == {"kube-controller-manager"}


def test_an_npm_lock_is_stripped_of_addresses(tmp_path: Path) -> None:
    path = tmp_path / "package-lock.json"
    path.write_text(
        '{"packages": {"a": {"version": "1", "resolved": "https://h/a", "funding": {"url": "u"}}}}'
    )
    lock.strip_addresses(path)
    assert "url" not in path.read_text()
    assert "https" not in path.read_text()
    assert '"version": "1"' in path.read_text()
