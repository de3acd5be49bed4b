"""A kind cluster with the operator in it.

engine        a container engine: the machine's own Docker, else a private dockerd
kind          the cluster
kubectl       kubectl in one namespace
installation  the operator, installed by its chart
diagnostics   what to save of a namespace where a test failed
e2e           what `make e2e` runs
clean         what `make e2e-clean` runs
"""
