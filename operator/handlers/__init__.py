"""The edge: the only code that knows kopf and the Kubernetes API.

startup     the operator's life: settings, the lease, the loops that work, a clean end
watch       every event -> the work queue
workqueue   keys that are due, each once, errors retried
reconcile   one object: gather, decide, take a step, look again
steps       what a reconcile may do about an object, one method a step
memory      what is remembered of objects under way, so that few are read
report      what is known of a group -> status and events, written when something changed
follow      what goes on in Redis -> which objects to look at
bookmark    how far that was read, and where to begin again
pools       what waits in queues -> which WorkerPools to look at
scaling     one pool: read its workload, decide, scale, and say so
targets     the workloads that pools scale, and what keeps a pool's hands off them
cluster     the few typed calls on the Kubernetes API
lease       who of several replicas works
health      /livez, /readyz and /metrics
metrics     what is counted, and what is looked up at a scrape
uninstall   what the chart runs before the operator goes: nothing is left stuck
failpoints  places where a test may have the operator die
"""
