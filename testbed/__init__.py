"""The ground the tests stand on: real servers, real workers, a real cluster.

Nothing here ships with the operator. Tests, benchmarks and the demo use it to start the real parts
on a machine that has only what its operating system brings.

  errors      one exception: this machine cannot do it, and here is what would help
  cache       the folder that outlives a checkout, its locks, and room on its disk
  commands    programs that are run to their end, and whose failure is one sentence
  processes   child processes that never outlive the process that started them
  toolchain   Go and Node: the machine's own, else the ones in PyPI's wheels
  binaries    Kubernetes, etcd and kind: found, downloaded or built from the pinned go.mod
  redis_server a Redis server on a free port
  apiserver   etcd and kube-apiserver, with an admin and an operator identity
  stock       stock BullMQ workers whose behaviour a test scripts
  examples    the workers of examples/, with the BullMQ that is installed here
  demo        what `make demo` runs
  sagas       a stage on which groups run to their end
  engine      a container engine
  images      the images a cluster needs, pulled or made
  cluster     a kind cluster in it
  e2e         all of the above, then tests/e2e
  install     what `make install` runs
"""
