"""The command line: `jobgroup`, or `python -m jobgroup`.

commands  the parser, exit codes
verbs     one function for each verb
output    groups and jobs as text and JSON
manifest  the text of a file -> plans
"""
