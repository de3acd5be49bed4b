"""The operator's entry point: `kopf run operator/main.py` loads it as a script.

It only imports the handlers; importing registers them.
"""

from handlers import startup, watch

__all__ = ["startup", "watch"]
