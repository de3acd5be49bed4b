"""The controller of JobGroups: watch events and changes in Redis -> one reconcile per object.

reconciler   one object: read, decide, act, repeat
steps        one method for each step of a decision
planning     the plan of the group that an object defines, computed in slices
reporter     status and Events, written when they changed
queue_watch  queues in which jobs wait without a worker -> objects to reconcile
left         objects that another release has claimed
cache        the objects in progress as last seen or written; it is not an informer
counts       the objects of each namespace by state, for a metric
follower     changed groups in Redis -> objects to reconcile
checkpoint   the entry up to which a stream was processed
"""
