"""The command `ampc`. Importing this is cheap; each verb imports what it needs when it runs."""

from __future__ import annotations

import sys
from typing import NoReturn


def entry() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    from ampc.cli.main import main

    sys.exit(main(sys.argv[1:]))


__all__ = ["entry"]
