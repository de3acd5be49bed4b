"""Servers and workers as child processes, which end with the process that started them.

processes  child processes, free ports
redis      a Redis server
tls        a TLS endpoint in front of a Redis server
apiserver  etcd and kube-apiserver, with an admin and an operator identity
proxy      an HTTP proxy between an operator and the API server, which a test can disturb
operator   the operator
stock      stock BullMQ workers whose behaviour a test scripts
"""
