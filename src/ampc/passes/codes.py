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
}
