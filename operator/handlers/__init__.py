"""The operator: the only code that knows kopf and the Kubernetes API.

startup      builds, starts and stops all parts: settings, leader election, loops, probes
watch        every watch event -> the controller of its kind
probe        prints what a probe of the operator in the same pod returns
uninstall    the hook that Helm runs before it removes the chart
jobgroups    the controller of JobGroups
workerpools  the controller of WorkerPools
telemetry    probes and metrics
kube         the API client, leader election, the work queue and its workers
settings     the environment -> settings
failpoints   points at which a test kills the operator
"""
