"""Servers and workers as child processes, which end with the process that started them.

processes       child processes, free ports
certificates    an authority and the certificates that it signs
redis           a Redis server of a chosen version
redis_sentinel  a master with replicas behind Sentinel
redis_cluster   a Redis Cluster
access          the users that a page of the docs shows
redis_kinds     the kinds of Redis that tests run on, by name
tls             a TLS endpoint in front of a Redis server
apiserver       etcd and kube-apiserver, with an admin and an operator identity
proxy           an HTTP proxy between an operator and the API server, which a test can disturb
operator        the operator
stock           stock BullMQ workers whose behaviour a test scripts
"""
