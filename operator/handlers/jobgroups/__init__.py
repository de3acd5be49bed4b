"""The controller of JobGroups: watch events and changes in Redis -> one reconcile per object.

reconciler   one object: read, decide, act, repeat
steps        one method for each step of a decision
reporter     status and Events, written when they changed
queue_watch  queues in which jobs wait without a worker -> objects to reconcile
cache        the objects in progress as last seen or written; it is not an informer
counts       the objects of each namespace by state, for a metric
follower     changed groups in Redis -> objects to reconcile
checkpoint   the entry up to which a stream was processed
"""
