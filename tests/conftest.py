"""Every test stands on the testbed's real parts."""

import signal

pytest_plugins = ["testbed.fixtures"]

# A shell starts what runs in the background deaf to Ctrl-C, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
