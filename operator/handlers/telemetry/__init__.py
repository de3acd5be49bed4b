"""Probes and metrics.

health       the HTTP server: /livez, /readyz and /metrics
checks       the checks behind /livez
redis_probe  whether Redis works, and how many groups it has
metrics      counters and histograms
state        metrics that are looked up at each scrape
"""
