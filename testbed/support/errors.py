"""The one way the testbed gives up."""


class Unavailable(Exception):
    """Something this machine lacks; the message says what, and how to get it, in a sentence."""
