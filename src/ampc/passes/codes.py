"""The codes of passes: 4xx."""

from __future__ import annotations

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP401": Explanation(
        "unknown pass",
        "A name after `--disable-pass` is none of the passes. `ampc passes` lists them in the order in which they run, with a sentence each.",
        "ampc compile model.amp --disable-pass simplfy",
        "ampc compile model.amp --disable-pass simplify",
    ),
    "AMP402": Explanation(
        "numbers of replicas differ",
        "An instance is dealt to one copy of every replicated layer, and to the same one of each: with 4 copies, the sixth instance admitted "
        "uses `embed~1` and `step~1`. So all layers with `replicas` need the same number.",
        "embed = Embedding(100, 64, replicas = 2)\nstep = Linear(128, 64, replicas = 4)",
        "embed = Embedding(100, 64, replicas = 4)\nstep = Linear(128, 64, replicas = 4)",
    ),
}
