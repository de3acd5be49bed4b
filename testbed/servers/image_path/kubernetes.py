"""Hides the Kubernetes client of the development environment from operators that tests start.

The operator's image does not contain that client. kopf imports it if it can, takes a third of its
start-up time for that, and reads its credentials with it.
"""

raise ImportError("the operator runs without the kubernetes package, as in its image")
