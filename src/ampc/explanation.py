"""What `ampc explain CODE` shows: the long form of a diagnostic's code."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """`title` in a few words, `text` in a few sentences; `wrong` and `right` are small programs or commands (may be empty)."""

    title: str
    text: str
    wrong: str = ""
    right: str = ""
