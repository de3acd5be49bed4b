"""`make generate`: write the CRDs to a folder, named on the command line."""

import sys
from collections.abc import Iterator
from pathlib import Path

from jobgroup.crd import jobgroup_crd, text
from jobgroup.pool_crd import workerpool_crd


def files() -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file."""
    for crd in (jobgroup_crd(), workerpool_crd()):
        yield f"{crd['spec']['names']['plural']}.yaml", text(crd)


if __name__ == "__main__":
    for name, content in files():
        Path(sys.argv[1], name).write_text(content)
