"""The controller of WorkerPools: jobs in queues -> replicas of workloads.

controller    all pools: counts jobs, and passes the pools that are due to workers
worker_check  the pools whose jobs no worker runs
pools         all pools, by workload and by queue; and rival pools
scaler        one pool: read its workload, decide, scale, report
pool          one pool, and what is kept about it between two reconciles
targets       the workloads that pools scale
"""
