"""`make generate`: write the CRDs into the folder given as argument."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jobgroup.crd.custom_resource import to_yaml
from jobgroup.crd.jobgroup import jobgroup_crd
from jobgroup.crd.workerpool import workerpool_crd
from jobgroup.resource.kinds import JOBGROUP, WORKERPOOL, Kind

CRDS: Mapping[Kind, Callable[[], dict[str, Any]]] = {
    JOBGROUP: jobgroup_crd,
    WORKERPOOL: workerpool_crd,
}


def files() -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file."""
    for kind, crd in CRDS.items():
        yield f"{kind.plural}.yaml", to_yaml(crd())


if __name__ == "__main__":
    for name, content in files():
        Path(sys.argv[1], name).write_text(content)
