"""What it costs, beside BullMQ itself: `make bench`.

Machines differ and are never quiet, so only ratios of things measured in turn, in one run, on one
Redis mean anything; each is the median of several rounds.

harness     a Redis, a BullMQ and a Python client of one's own; rounds, rows and the table
creation    groups created a second, beside BullMQ's flows and beside a bare socket
settling    sagas settled a second beside a worker, and what the ledger costs that worker
failing     groups that fail: the longest call, the number of calls, when undos can run
growth      cost a unit as members, groups and queues grow, and memory
field       a field for operators: a real API server with JobGroups, a Redis, a worker and a load
operating   what a group costs the operator, and how fast it goes through, beside a twin
scaling     how soon a pool scales its workload, and what pools cost at rest
"""
