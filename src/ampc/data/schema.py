"""What a model's `instance:` block asks of the data, field by field: the nesting, the width, and how it is said in messages."""

from __future__ import annotations

import dataclasses

from ampc.ir.graph import AxisDecl, FieldDecl, Graph


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """One field: `axes` from the outermost to the one it lies over; `width` is its list length if it is a vector, else 0."""

    decl: FieldDecl
    axes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.decl.name

    @property
    def width(self) -> int:
        return self.decl.columns if self.decl.kind == "float" and self.decl.columns > 1 else 0

    @property
    def depth(self) -> int:
        """How many lists lie around a single number."""
        return len(self.axes) + (1 if self.width else 0)

    @property
    def shape(self) -> str:
        """The declared shape, "[node, 2]"; "a single value" for one of the instance."""
        parts = [*self.axes, *([str(self.width)] if self.width else [])]
        return f"[{', '.join(parts)}]" if parts else "a single value"

    @property
    def declaration(self) -> str:
        """The field as the language writes it: "left: node[node] or none"."""
        d = self.decl
        inside = ", ".join([*([d.axis] if d.axis else []), *([str(self.width)] if self.width else [])])
        kind = d.of if d.kind == "index" else d.kind
        limit = f" < {d.below}" if d.kind == "int" and d.below else ""
        return f"{d.name}: {kind}{f'[{inside}]' if inside else ''}{limit}{' or none' if d.optional else ''}"

    @property
    def wanted(self) -> str:
        """What a single value must be: "an integer 0..13 or null"."""
        d = self.decl
        none = " or null" if d.optional else ""
        match d.kind:
            case "float":
                return f"a number{none}"
            case "flag":
                return f"true or false{none}"
            case "index":
                return f"a position on axis `{d.of}`{none}"
            case _:
                return f"an integer 0..{d.below - 1}{none}" if d.below else f"an integer{none}"


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """All fields and axes; `axes` is ordered with parents before the axes nested in them."""

    axes: tuple[AxisDecl, ...]
    specs: tuple[Spec, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.specs)


def schema_of(graph: Graph) -> Schema:
    """Return the schema of `graph`; its nodes are not looked at."""
    parents = {a.name: a.parent for a in graph.axes}

    def chain(axis: str) -> tuple[str, ...]:
        return (*chain(parents[axis]), axis) if axis else ()

    axes = tuple(sorted(graph.axes, key=lambda a: len(chain(a.name))))
    return Schema(axes, tuple(Spec(f, chain(f.axis)) for f in graph.fields))


__all__ = ["Schema", "Spec", "schema_of"]
