"""The parts that all controllers share.

client         typed calls of the Kubernetes API
kopf_settings  the settings of kopf
leader         leader election with a Lease
ratelimit      the limit of requests to the API server: a token bucket
turns          items of several namespaces, served in turns
workqueue      a rate-limited queue of keys
worker         one object of a work queue: reconcile it, and queue it again
"""
