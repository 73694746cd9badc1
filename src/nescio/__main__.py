"""`python -m nescio` is the command `nescio`."""

import sys

from nescio.cli import main

if __name__ == "__main__":
    sys.exit(main())
