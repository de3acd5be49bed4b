"""The operator's entry point: `kopf run operator/main.py` loads it as a script.

It only imports the handlers; importing registers them.
"""

import sys

from handlers import startup, watch

__all__ = ["startup", "watch"]

# The API server takes data nested up to 10,000 deep. What Python's reader cannot take would end the
# watch of all objects for the sake of one, so it has to take it; the one is refused later.
sys.setrecursionlimit(60_000)
