"""Every test stands on the testbed's real parts."""

pytest_plugins = ["testbed.fixtures"]
