"""`docs/language.md`: every example compiles, and its tables are those of `ampc.frontend.names`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ampc.frontend import check, parse
from ampc.frontend.names import FUNCTIONS, LAYERS, LOSSES, METRICS, SETTINGS, Callable
from ampc.ir.verify import verify
from ampc.lower import lower

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```amp\n(.*?)```", TEXT, re.DOTALL)
PRELUDE = next(x for x in EXAMPLES if x.startswith("model example"))


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_compiles(number: int) -> None:
    text = EXAMPLES[number]
    if not text.startswith("model"):
        text = PRELUDE + "".join(f"    {line}\n" if line else "\n" for line in text.split("\n"))
    if not re.search(r"^ *(loss|output) ", text, re.MULTILINE) and " output " not in text:
        text += "    output end = zeros(1)\n"
    model = parse(text, "docs.amp")
    check(model)
    verify(lower(model, {}))


def usage(c: Callable) -> str:
    both = f"`{c.usage}`, `{c.name}(axis, {', '.join(o.name for o in c.operands)})`" if c.over_axis else f"`{c.usage}`"
    return f"| {both} | {c.help} |"


def table(name: str) -> list[str]:
    match name:
        case "functions":
            return [usage(c) for c in FUNCTIONS.values()]
        case "losses":
            return [usage(c) for c in LOSSES.values()]
        case "metrics":
            return [usage(c) for c in METRICS.values()]
        case _:
            return [
                f"| `{s.name}`{' •' if s.per_layer else ''} | {', '.join(f'`{c}`' for c in s.choices) or {'flag': '`true`, `false`'}.get(s.what, s.what)} | {s.help} |"
                for s in SETTINGS.values()
            ]


@pytest.mark.parametrize("name", ["functions", "losses", "metrics", "settings"])
def test_tables_are_complete(name: str) -> None:
    before, after = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    start, stop = TEXT.index(before) + len(before), TEXT.index(after)
    head = TEXT[start:stop].split("\n")[:2]
    wanted = "\n".join([*head, *table(name)]) + "\n"
    if os.environ.get("AMPC_UPDATE_GOLDEN"):
        text = PAGE.read_text(encoding="utf-8")
        start, stop = text.index(before) + len(before), text.index(after)
        PAGE.write_text(text[:start] + wanted + text[stop:], encoding="utf-8")
        return
    assert TEXT[start:stop] == wanted, "AMPC_UPDATE_GOLDEN=1 pytest tests/frontend/test_language_docs.py rewrites the tables"


def test_every_layer_and_option_is_described() -> None:
    part = TEXT[TEXT.index("## Layers") : TEXT.index("## Values and shapes")]
    for layer in LAYERS.values():
        assert f"`{layer.name}({', '.join(o.name for o in layer.operands)})`" in part
        for option in layer.options:
            assert f"| `{option.name}` |" in part
