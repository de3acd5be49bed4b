"""What `make e2e-clean` runs: it deletes the clusters that runs created, and a private engine.

A kind cluster that no run created is left alone, and so is the engine that runs it.
"""

import sys

from testbed.build.cache import locked
from testbed.cluster import engine, kind
from testbed.support.errors import Unavailable


def main() -> int:
    """Delete what runs left; an error is printed as one sentence."""
    try:
        with locked("e2e", "finish with its cluster"):
            _clean()
    except Unavailable as refusal:
        print(refusal, file=sys.stderr)
        return 2
    return 0


def _clean() -> None:
    names = kind.recorded()
    if not names:
        print("There is no cluster to delete.")
        return
    docker = engine.running()
    for name in names:
        kind.delete(docker, name)
        print(f"Deleted the cluster {name}.", flush=True)
    if not kind.listed(docker):
        engine.stop_kept()


if __name__ == "__main__":
    sys.exit(main())
