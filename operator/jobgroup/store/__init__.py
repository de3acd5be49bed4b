"""Redis: the only package that imports redis.

settings    the REDIS_* variables
connection  clients, and which errors are transient
scripts     Lua files as callables
replies     replies of scripts -> values or exceptions
store       groups: one method for each script
details     the names of jobs, and why they failed
wakeups     the wake-up list
reviews     pages of groups for the resync
queues      backlogs, event streams and connected workers of queues
streams     the events of a queue and the changes of an owner's groups
observer    the interface that metrics implement
"""
