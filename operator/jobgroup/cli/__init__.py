"""The command line: `jobgroup`, or `python -m jobgroup`.

commands  the parser, exit codes
verbs     one function for each verb
finding   the verbs that find groups and the values of their jobs
output    groups and jobs as text and JSON
manifest  the text of a file -> plans
"""
