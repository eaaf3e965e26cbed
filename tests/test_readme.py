"""What the README says is so: its links lead somewhere, its program compiles, its verbs and make targets exist."""

from __future__ import annotations

import re
from pathlib import Path

from ampc.compiler import compile_source
from ampc.source import remember

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not link.startswith("http")]
    assert links
    assert [link for link in links if not _leads_somewhere(link)] == []


def _leads_somewhere(link: str) -> bool:
    """Whether a file is there, with the heading that is named after `#`."""
    file, _, heading = link.partition("#")
    if not (ROOT / file).exists():
        return False
    headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE) if heading else []
    return not heading or heading in [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]


def test_its_program_compiles() -> None:
    program = re.search(r"```\n(model .*?)```", TEXT, re.DOTALL)
    assert program is not None
    assert compile_source(remember("readme.amp", program.group(1).encode(), "README.md")).manifest is not None


def test_its_verbs_and_targets_exist() -> None:
    from ampc.cli.main import VERBS

    verbs = set(VERBS)
    used = set(re.findall(r"(?m)^ampc (\w+)", TEXT)) | set(re.findall(r"`ampc (\w+)", TEXT))
    assert used <= verbs
    assert verbs <= used
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in re.findall(r"`?make ([a-z-]+)", TEXT) if target not in ("lists",))
