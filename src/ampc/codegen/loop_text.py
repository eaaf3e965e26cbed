"""The text of one fused loop: over all numbers at once, by rows and columns, or token by token where it reads or writes arenas itself."""

from __future__ import annotations

from ampc.codegen.loops import Buffer, Fused, Load, Store, Value
from ampc.codegen.text import Line


def write(fused: Fused, number: int) -> list[Line]:
    """Return the loop's lines; `number` tells it from others of the function."""
    return _Writer(fused, number).lines()


class _Writer:
    """The text of one fused loop; `number` tells it from others of the function."""

    def __init__(self, fused: Fused, number: int) -> None:
        self.loop, self.fused, self.number = fused.loop, fused, number
        self.scopes: dict[tuple[str, int], int] = {}
        self.sources: dict[str, str] = {}
        """Buffer -> local with the place that it is read from."""
        self.arenas: dict[str, list[str]] = {}
        """Buffer -> locals with the places in arenas that it is written to."""

    def lines(self) -> list[Line]:
        if not self.loop.steps:
            return []
        moves = [*self.fused.reads.values(), *(m for ms in self.fused.writes.values() for m in ms)]
        depth, rows = self.loop.depth, self.loop.rows
        lines: list[Line] = []
        if moves:
            lines.append(Line(depth, "for i in range(n):"))
            depth, rows = depth + 1, moves[0].count
            lines += [Line(depth, p) for p in dict.fromkeys(p for m in moves for p in m.prelude)]
            lines += self._pointers(depth, moves[0].first)
        for b, _ in self.loop.touched():
            self.sources.setdefault(b.name, b.name)
        return lines + self._loops(depth, rows)

    def _pointers(self, depth: int, first: str) -> list[Line]:
        """Locals with the places of the token's rows."""
        lines: list[Line] = []
        reads, writes = self.fused.reads, self.fused.writes
        kept = {name for name, _ in self.fused.kept}
        for b, written in self.loop.touched():
            elsewhere = b.name in reads or (written and b.name not in kept and not any(m.when for m in writes.get(b.name, ())))
            if b.name not in self.sources and not elsewhere:
                self.sources[b.name] = f"at_{b.name}"
                lines.append(Line(depth, f"at_{b.name} = {b.name} + {first} * {b.width}"))
        for name, move in reads.items():
            self.sources[name] = f"in_{name}"
            lines += [Line(depth + k.depth, k.text) for k in move.pointer(f"in_{name}") or ()]
        for name, moves in writes.items():
            for number, move in enumerate(moves):
                place = f"to_{name}_{number}"
                self.arenas.setdefault(name, []).append(place)
                inside = depth
                if move.when:
                    lines += [Line(depth, f"{place} = at_{name}"), Line(depth, move.when)]
                    inside += 1
                lines += [Line(inside + k.depth, k.text) for k in move.pointer(place) or ()]
        return lines

    def _loops(self, depth: int, rows: str) -> list[Line]:
        """One loop over all numbers where every block is as wide as the loop, else one over rows around one over columns."""
        cols = self.loop.cols
        if all(b.dense and b.cols == cols for b, _ in self.loop.touched()):
            count = str(cols) if rows == "1" else f"{rows} * {cols}"
            return [Line(depth, f"for j in range({count}):"), *self._body(depth + 1, None)]
        if rows == "1":
            return [Line(depth, f"for j in range({cols}):"), *self._body(depth + 1, "")]
        return [Line(depth, f"for r in range({rows}):"), Line(depth + 1, f"for j in range({cols}):"), *self._body(depth + 2, "r")]

    def _body(self, depth: int, row: str | None) -> list[Line]:
        lines: list[Line] = []
        for s in self.loop.steps:
            match s:
                case Load(var=var, buffer=b):
                    source = self.sources[b.name]
                    lines.append(Line(depth, f"{var} = load(F, {self._place(source, b, row)}, {self._scope(source, b)})"))
                case Value(var=var, text=text):
                    lines.append(Line(depth, f"{var} = {text}"))
                case Store(buffer=b, var=var):
                    scratch = [self.sources[b.name]] if (b.name, b.start) in self.fused.kept else []
                    for target in [*scratch, *self.arenas.get(b.name, ())]:
                        lines.append(Line(depth, f"save(F, {self._place(target, b, row)}, {var}, {self._scope(target, b)})"))
        return lines

    def _place(self, base: str, b: Buffer, row: str | None) -> str:
        """Text of the place of a number; `row`: a local with its row, "" in a loop over one row, None in a loop over all numbers."""
        if row is None:
            return f"{base} + j"
        parts = [base]
        if row:
            parts.append(row if b.width == 1 else f"{row} * {b.width}")
        if b.start:
            parts.append(str(b.start))
        if b.cols == self.loop.cols:
            parts.append("j")
        return " + ".join(parts)

    def _scope(self, base: str, b: Buffer) -> int:
        """A number for the memory behind a place: nothing else that the loop touches overlaps it."""
        return 32 * self.number + self.scopes.setdefault((base, b.start), len(self.scopes))
