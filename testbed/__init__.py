"""Real servers, workers and clusters for tests, benchmarks and the demo. Nothing here ships.

build      programs that the tests need: found, downloaded, or built from pinned modules
servers    Redis, the Kubernetes API, the operator and stock BullMQ workers as child processes
images     container images, pulled or made from Debian's packages
cluster    a container engine, a kind cluster and the operator installed in it
support    what tests share: fixtures, builders of objects, waiting, readers of pages and metrics
demo       what `make demo` runs
matrix     what `make redis-matrix` runs
workers    the scripts of the stock BullMQ workers, and their npm lock file
"""

from pathlib import Path

TESTBED = Path(__file__).resolve().parent
ROOT = TESTBED.parent
