"""The command `ampc`. Importing this is cheap; each verb imports what it needs when it runs."""

from __future__ import annotations

import sys
from typing import NoReturn


def entry() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    try:
        from ampc.cli.main import main

        status = main(sys.argv[1:])
    except KeyboardInterrupt:  # Ctrl-C while still importing
        status = 130
    sys.exit(status)


__all__ = ["entry"]
