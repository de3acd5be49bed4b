"""The controller of WorkerPools: jobs in queues -> replicas of workloads.

controller  all pools: counts jobs, and passes the pools that are due to workers
pools       all pools, by workload and by queue
scaler      one pool: read its workload, decide, scale, report
targets     the workloads that pools scale
"""
