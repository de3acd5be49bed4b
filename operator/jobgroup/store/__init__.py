"""Redis: the only package that imports redis.

settings     the REDIS_* variables
redis_url    the parts of a URL, and what is wrong with one. Pure
connection   clients of each kind of Redis: one server, Sentinel, Cluster
pool         connections that leave a server when the data do
locators     which server has the data of the prefix: what all kinds share
sentinels    the same for Sentinel
cluster      the same for Redis Cluster
credentials  users and passwords from files
tls          certificates from files
files        which files have changed
transience   which errors are transient
rights       whether the user may run all commands of the scripts
scripts      Lua files as callables
replies      replies of scripts -> values or exceptions
store        groups: one method for each script
details      the names of jobs, and why they failed
listing      pages of groups by state and filters, and of return values
wakeups      the wake-up list
reviews      pages of groups for the resync
queues       backlogs, event streams and connected workers of queues
streams      the events of a queue and the changes of an owner's groups
observer     the interface that metrics implement
"""
