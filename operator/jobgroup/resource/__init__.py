"""What the operator decides about a resource. Pure.

kinds              the table of kinds
jobgroup_spec      the spec of a JobGroup
jobgroup_status    the schema of its status
workerpool_spec    the spec of a WorkerPool
workerpool_status  the schema of its status, and the status itself
decisions          an object and its group -> the next step
answers            the answers to jobs in a spec -> what to apply and what to show
resolutions        the resolved undos in a spec -> what to resolve now
requests           the recorded requests of a group -> sentences
status             a group -> the status of its JobGroup
events             a group -> Kubernetes Events
replicas           a backlog and bounds -> replicas
workload           a workload: its replicas, and whether it may be scaled
listeners          the names of Redis connections -> which queues have workers
conditions         the parts of a status that both kinds share
reasons            the reasons of conditions, problems and Kubernetes Events
"""
