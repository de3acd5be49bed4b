"""Programs that the tests need: found on this machine, downloaded, or built from pinned modules.

cache      the folder that outlives a checkout, its locks, and the space on its disk
toolchain  Go, Node and Redis: the machine's own, else the ones in PyPI's wheels
debian     programs from packages of a chosen Debian release
modules    programs built from Go modules that a go.mod here pins
binaries   Kubernetes, etcd and kind
helm       Helm
install    what `make install` runs
lock       what `make lock` runs
"""
