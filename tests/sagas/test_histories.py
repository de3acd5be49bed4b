"""Whatever stock clients, people, callers and drivers do, in whatever order: the rules hold.

2,000 random histories of up to 50 steps. HISTORIES=50 runs fewer, --hypothesis-seed=... the same
ones again, and a history that breaks a rule is shrunk to the few steps that matter.
"""

from pathlib import Path

import pytest

from tests.sagas.ground import ground
from tests.sagas.histories import run_histories


@pytest.mark.timeout(1800)
def test_the_rules_hold_in_every_history(redis_url: str, prefix: str, tmp_path: Path) -> None:
    with ground(redis_url, prefix, tmp_path) as shared:
        run_histories(shared)
