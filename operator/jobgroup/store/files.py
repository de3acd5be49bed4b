"""Files that change while the process runs, such as a mounted Secret."""

from collections.abc import Sequence
from pathlib import Path

Stamp = tuple[int, int, int] | None


def stamps(files: Sequence[str | Path]) -> list[Stamp]:
    """Return what changes with each file; None for one that cannot be found."""
    return [_stamp(Path(file)) for file in files]


def _stamp(path: Path) -> Stamp:
    """Return what changes with a file; Kubernetes replaces a link to it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
