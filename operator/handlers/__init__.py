"""The edge: the only code that knows kopf and the Kubernetes API.

startup     kopf's settings, chosen once
"""
