"""`python -m jobgroup`: the command line."""

import sys

from jobgroup.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
