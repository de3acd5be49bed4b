"""Benchmarks relative to BullMQ: `make bench`.

Machines differ and have other load, so only ratios are compared: of two things measured in turn, in
one run, on one Redis. Each value is the median of several rounds.

harness     starts a Redis, a BullMQ and a Python client; rounds and rows of the table
creation    groups created per second, relative to BullMQ's flows and to a bare socket
settling    sagas settled per second, relative to a worker, and what the ledger costs that worker
failing     groups that fail: the longest call, the number of calls, when undos can run
growth      cost per unit as members, groups and queues grow, and memory
field       a real API server with JobGroups, a Redis, a worker and a load, on which operators run
operating   cost of a group for the operator and its latency, relative to a twin
scaling     how soon a pool scales its workload, and what idle pools cost
twin        a simple operator made of kopf's create and delete handlers, for comparison
"""
