"""`make install`: its output, and how it completes an incomplete installation."""

import shutil
from pathlib import Path

import pytest

from testbed.build import binaries, install, lock
from testbed.servers.stock import CLIENTS
from testbed.support.errors import Unavailable


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the stock workers' folder without installed packages."""
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(CLIENTS / name, tmp_path)
    monkeypatch.setattr(install, "CLIENTS", tmp_path)
    return tmp_path


def test_an_incomplete_installation_is_completed(clients: Path) -> None:
    (clients / "node_modules").mkdir()
    assert install.install_workers() == "installed"
    assert (clients / "node_modules" / "bullmq5" / "package.json").exists()
    assert install.install_workers() == "already installed"


def test_a_changed_lock_is_installed_again(clients: Path) -> None:
    (clients / "node_modules").mkdir()
    (clients / "node_modules" / ".installed-lock").write_text("an older one")
    assert install.install_workers() == "installed"


def test_a_registry_out_of_reach_is_named(clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_offline", "true")
    monkeypatch.setenv("npm_config_cache", str(clients / "empty"))
    with pytest.raises(Unavailable, match="check that this machine reaches an npm registry"):
        install.install_workers()
    assert not (clients / "node_modules" / ".installed-lock").exists()


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (Unavailable("there is no moon"), 2, "make install: there is no moon"),
        (KeyboardInterrupt(), 130, "run it again to continue"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(
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
    # If everything is installed, nothing is printed before the demo.
    assert capsys.readouterr().out == ""
    assert install.main() == 0
    said = capsys.readouterr().out
    assert "stock BullMQ workers: already installed" in said
    assert "helm: /bin/true" in said
    assert asked[1] - asked[0] == {"kube-controller-manager"}


def test_an_npm_lock_contains_no_addresses(tmp_path: Path) -> None:
    path = tmp_path / "package-lock.json"
    path.write_text(
        '{"packages": {"a": {"version": "1", "resolved": "https://h/a", "funding": {"url": "u"}}}}'
    )
    lock.strip_addresses(path)
    assert "url" not in path.read_text()
    assert "https" not in path.read_text()
    assert '"version": "1"' in path.read_text()
