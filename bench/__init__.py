"""Benchmarks relative to BullMQ: `make bench`.

Absolute times depend on the machine and its load, so most results are ratios. The two values of a
ratio are measured in turn, in one run, on one Redis. Each result is the median of several rounds.

The framework:

rows        a measured number, its bar and its spread; how to add a row
catalogue   everything that is measured, and all bars
parts       the parts, which ROWS selects
sizes       the sizes of all measurements, and small ones for tests
harness     starts Redis, a BullMQ process and a Python client; rounds
results     the results of a run in a file, with facts of the machine
report      what a run prints: the rows of each part, then the summary
document    writes measured values into docs/performance.md
compare     what changed between two runs: `make bench-compare`

The parts:

creation    groups created per second, relative to BullMQ's flows and to a bare socket
settling    sagas settled per second, relative to a worker, and what the ledger costs that worker
spending    the CPU of a completed group, relative to a BullMQ flow with as many jobs
memory      the memory of a group, relative to that of its jobs without a group
failing     groups that fail: longest call, number of calls, time until the undos are added
growth      cost per unit as members, groups and queues grow
driving     how long a group waits for its driver beside many groups, what starts after a failure
noticing    how soon a driver notices what people do to jobs, beside many groups
operating   cost and latency of a group in the operator, relative to a twin
planning    how long the reconcile of a large object holds the event loop
recovering  how soon another replica leads, and how soon a silent watch is replaced
scaling     how fast a pool scales its workload, and the cost of idle pools
fairness    how long a neighbour waits while another tenant floods the operator

Their helpers:

field       the servers for the operator benchmarks: API server, Redis and a worker
hurried     the operator, but it reads idle pools again sooner
stepped     the operator, but it writes how long each reconcile holds the event loop
twin        a simple operator made of kopf's create and delete handlers, for comparison
"""
