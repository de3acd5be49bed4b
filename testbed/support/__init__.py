"""What tests and the demo share.

errors      the exceptions: this machine lacks something, the API server rejected a request
commands    programs that run to their end; a failure is one sentence
waiting     wait for a condition
fixtures    pytest fixtures for the real parts
sagas       groups in Redis with a driver at work
raw_keys    all keys below a prefix as JSON, and back
user        a user of the Kubernetes API: the official Python client
resources   JobGroups on an API server
workloads   WorkerPools and what they scale
stages      replicas of the operator for tests that break things
scrapes     one scrape of /metrics
promql      alert rules and queries, evaluated by Prometheus' own engine
audit       RBAC grants compared with the calls of an audit log
chart       the Helm chart, rendered
examples    the workers and the books of examples/order-fulfilment
pages       the documentation as blocks, commands, links and headings
reader      run the commands of a page
"""
