"""`python -m nescio_papers COMMAND …` is `nescio COMMAND …` for the commands of this package, installed or not."""

import sys

from nescio.cli import main
from nescio_papers.commands import reproduce, train

if __name__ == "__main__":
    sys.exit(main(extra={"reproduce": reproduce, "train": train}))
