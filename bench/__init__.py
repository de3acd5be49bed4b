"""Benchmarks relative to BullMQ: `make bench`.

Absolute times depend on the machine and its load, so the results are ratios. The two values of a
ratio are measured in turn, in one run, on one Redis. Each result is the median of several rounds.

harness     starts Redis, a BullMQ process and a Python client; rounds and rows of the table
creation    groups created per second, relative to BullMQ's flows and to a bare socket
settling    sagas settled per second, relative to a worker, and what the ledger costs that worker
failing     groups that fail: longest call, number of calls, time until the undos are added
driving     how long a group waits for its driver beside many groups, what starts after a failure
growth      cost per unit as members, groups and queues grow, and memory
field       the servers for the operator benchmarks: API server, Redis and a worker
operating   cost and latency of a group in the operator, relative to a twin
recovering  how soon another replica leads, and how soon a silent watch is replaced
scaling     how fast a pool scales its workload, and the cost of idle pools
fairness    how long a neighbour waits while another tenant floods the operator
twin        a simple operator made of kopf's create and delete handlers, for comparison
"""
