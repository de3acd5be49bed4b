"""The errors of the testbed's own."""


class Unavailable(Exception):
    """This machine lacks something; the message names it and how to get it, in a sentence."""


class Rejected(Exception):
    """The Kubernetes API server rejected a request; the message is the server's."""
