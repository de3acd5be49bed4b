"""The operator's entry point: `kopf run operator/main.py` loads it as a script.

It imports the handlers, which registers them. Python can run it, too, as the image does: `python
operator/main.py --all-namespaces` is `kopf run --standalone` with these options, and `--version`
prints the version.
"""

import gc
import sys

from kopf import cli

from handlers import startup, watch
from handlers.kube.kopf_settings import raise_recursion_limit
from jobgroup import __version__

__all__ = ["startup", "watch"]

raise_recursion_limit()
# A full collection holds the event loop. It takes 45 ms if it also examines all that was imported.
gc.collect()
gc.freeze()

if __name__ == "__main__":
    if "--version" in sys.argv[1:]:
        sys.stdout.write(f"jobgroup-operator {__version__}\n")
    else:
        cli.main(["run", "--standalone", *sys.argv[1:], __file__], prog_name="jobgroup-operator")
