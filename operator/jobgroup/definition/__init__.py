"""The definition of a group. Pure.

options     the BullMQ options that a job or an undo may have
spec        models of a definition
validation  an error of pydantic -> one error message
slices      computations that take breaks between the slices of a large definition
digest      a definition -> the text that identifies it
requests    what a caller says about a request: who asks for it, and why
answers     what a caller completes a job with, or why it fails
lifetime    how long a group runs and is kept
plan        a definition and an id -> the argument of create_groups.lua
"""
