"""The parts that all controllers share.

client         typed calls of the Kubernetes API
requests       the method and URL of a request -> its verb and resource
refusals       counts the requests that the API server refuses
rights         the rights that the operator needs
rights_check   whether the operator has them
refs           references to objects: the keys of the work queues
kopf_settings  the settings and credentials of kopf
watches        kopf's reads of the API server: repeated if they fail, and observed
leader         leader election with a Lease
releases       other releases, and whether they still process an object
selectors      label selectors, evaluated without the API server
ratelimit      the limit of requests to the API server: a token bucket
turns          items of several namespaces, served in turns
workqueue      a rate-limited queue of keys
worker         one object of a work queue: reconcile it, and queue it again
"""
