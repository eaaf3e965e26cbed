"""Random programs, of two worlds: `graphs` (sequences, graphs, trees, DAGs) and `words` (nested axes, every loss). A seed gives a program, always the same.

    generate(random.Random(7))            # a program over graphs
    generate(random.Random(7), "words")
"""

from __future__ import annotations

import random

from .graphs import Graphs
from .words import Words
from .writer import Writer

WORLDS: dict[str, type[Writer]] = {"graphs": Graphs, "words": Words}


def generate(rng: random.Random, world: str = "graphs") -> str:
    """Return a random program."""
    return WORLDS[world](rng).program()
