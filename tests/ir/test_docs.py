"""The table of operations in docs/ir.md is that of the code. Run this file to write it anew."""

from __future__ import annotations

from pathlib import Path

from ampc.ir import OPS, from_text

PAGE = Path(__file__).parents[2] / "docs" / "ir.md"
BEGIN, END = "<!-- operations: written by tests/ir/test_docs.py -->\n", "<!-- end of operations -->"
TITLES = {
    "unary": "Element-wise, of one value", "binary": "Element-wise, of two values", "columns": "Over columns", "rows": "Over rows",
    "parameter": "With parameters", "source": "From fields and constants", "integer": "Integers, for branches", "random": "Random",
    "loss": "Losses", "metric": "Metrics",
}


def table() -> str:
    lines = []
    for group, title in TITLES.items():
        lines += ["", f"**{title}**", "", "| operation | operands | attributes | gives |", "| --- | --- | --- | --- |"]
        for op in (o for o in OPS.values() if o.group == group):
            low, high = op.messages
            words = ["x", "y"][:low] + [f"[{w}]" for w in ["x", "y"][low:high]]
            words += ["*field*"] * op.fields[0] + ["[*field*]"] * (op.fields[1] - op.fields[0]) + [f"`{p}`" for p in op.params]
            attrs = ", ".join(f"`{a.name}`" + (f" = {a.default}" if a.default is not None else "") for a in op.attrs)
            lines.append(f"| `{op.name}` | {', '.join(words)} | {attrs} | {op.help.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n\n"


def test_table_of_operations_is_that_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0] == table(), "run `python tests/ir/test_docs.py`"


def test_every_operation_has_a_group_with_a_title():
    assert {o.group for o in OPS.values()} == set(TITLES)


def test_text_shown_reads():
    block = PAGE.read_text(encoding="utf-8").split("## Text")[1].split("```")[1]
    assert len(from_text(block).nodes) == 6


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
