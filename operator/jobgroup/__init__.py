"""The core of a saga: pure unless marked (redis), and free of Kubernetes.

scripts  (redis)  lua/ -> callables whose names and arguments come from each script's header
"""

__version__ = "0.1.0"
