"""Values that all layers share. Pure.

snapshot  groups, jobs and totals as the scripts return them
backlog   the jobs of one queue
names     ids, queue names and Redis keys
text      times and foreign texts
clock     the time and the backoff
"""
