"""docs/results.md: each part is made by a program between two marks; what stands around them is written by hand and stays."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.ours import ROOT

RESULTS = ROOT / "docs" / "results.md"


def put_part(name: str, made_by: str, text: str, path: Path = RESULTS) -> None:
    """Put a part in the place of its older form, or at the end."""
    begin, end = f"<!-- {name}: made by `{made_by}` -->", f"<!-- end of {name} -->"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    before, _, rest = old.partition(begin)
    after = rest.partition(end)[2]
    joined = f"{before.rstrip()}\n\n{begin}\n{text.strip()}\n\n{end}\n" + (f"\n{after.lstrip()}" if after.strip() else "")
    temporary = path.with_suffix(".tmp")
    temporary.write_text(joined, encoding="utf-8")
    os.replace(temporary, path)
