"""Reads the text form of a graph: a hand-written parser, one statement a line. It checks form, not meaning: `verify` does that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

from ampc.diagnostics import AmpError, Diagnostic, Label, Span
from ampc.ir import nodes as ir
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer, Param
from ampc.ir.nodes import AnyNode, Attr, FieldRef, Index, Ref, Region, Test, Type

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.~][A-Za-z0-9_]+)*")
TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\#.*)
    |(?P<number>-?(?:inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?)\b)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:[.~][A-Za-z0-9_]+)*)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<mark>[%@:=(),|\[\]{}*])""",
    re.VERBOSE,
)
MAX_NESTING = 64
T = TypeVar("T")


class Token(NamedTuple):
    kind: str
    text: str
    column: int


class Line:
    """The tokens of one line, with a cursor."""

    def __init__(self, file: str, number: int, text: str) -> None:
        self.file, self.number = file, number
        self.tokens: list[Token] = []
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                self.fail(f"unexpected character `{text[at]}`", Token("", text[at], at + 1))
            if found.lastgroup != "space":
                self.tokens.append(Token(str(found.lastgroup), found.group(), at + 1))
            at = found.end()
        self.end = Token("end", "the end of the line", len(text) + 1)
        self.at = 0

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        token = token or self.peek
        stop = token.column + (len(token.text) if token.kind != "end" else 1)
        span = Span(self.file, self.number, token.column, self.number, stop)
        raise AmpError(Diagnostic("AMP320", message, primary=Label(span)))

    @property
    def peek(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else self.end

    def take(self) -> Token:
        token = self.peek
        self.at += 1
        return token

    def got(self, text: str) -> bool:
        """Take the next token if it is this mark or word."""
        if self.peek.kind in ("mark", "word") and self.peek.text == text:
            self.at += 1
            return True
        return False

    def want(self, text: str) -> None:
        if not self.got(text):
            self.fail(f"expected `{text}`, got {self._shown()}")

    def _shown(self) -> str:
        return self.peek.text if self.peek.kind == "end" else f"`{self.peek.text}`"

    def word(self, what: str) -> str:
        """Take a name: a word or a string."""
        if self.peek.kind == "string":
            return self.string()
        if self.peek.kind != "word":
            self.fail(f"expected {what}, got {self._shown()}")
        return self.take().text

    def string(self) -> str:
        if self.peek.kind != "string":
            self.fail(f"expected a text in quotes, got {self._shown()}")
        try:
            return str(json.loads(self.peek.text))
        except ValueError:
            self.fail("the text in quotes has an unknown escape")
        finally:
            self.at += 1

    def integer(self) -> int:
        value = self.number_value()
        if not isinstance(value, int):
            self.at -= 1
            self.fail(f"expected an integer, got {self._shown()}")
        return value

    def number_value(self) -> int | float:
        if self.peek.kind != "number":
            self.fail(f"expected a number, got {self._shown()}")
        text = self.peek.text
        if len(text) > 40:
            self.fail("the number has more than 40 characters")
        self.at += 1
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def listed(self, close: str, item: Callable[[], T]) -> list[T]:
        """Take items separated by commas up to `close`."""
        out: list[T] = []
        if self.got(close):
            return out
        while True:
            out.append(item())
            if self.got(close):
                return out
            self.want(",")


# ------------------------------------------------------------------------------------------------------ statements


def from_text(text: str, file: str = "graph.ir") -> Graph:
    """Return the graph that `text` describes. Raises AMP320 at the first place that doesn't read; the graph is not verified."""
    found: dict[str, list[Any]] = {k: [] for k in ("graph", "parameter", "train", "axis", "field", "layer", "region", "node")}
    for number, raw in enumerate(text.split("\n"), 1):
        line = Line(file, number, raw.rstrip("\r"))
        if not line.tokens:
            continue
        if line.got("%"):
            found["node"].append(_node(line))
        else:
            keyword = line.take()
            if keyword.text not in STATEMENTS:
                line.fail(f"expected a declaration or a node, got `{keyword.text}`", keyword)
            found[keyword.text].append(STATEMENTS[keyword.text](line))
        if line.peek is not line.end:
            line.fail(f"expected the end of the line, got `{line.peek.text}`")
    if len(found["graph"]) != 1:
        raise AmpError(Diagnostic("AMP320", f"a graph has one line `graph NAME`, this text has {len(found['graph'])}"))
    return Graph(
        found["graph"][0], tuple(found["axis"]), tuple(found["field"]), tuple(found["layer"]), tuple(found["region"]), tuple(found["node"]),
        dict(found["train"]), dict(found["parameter"]),
    )


def _setting(line: Line) -> tuple[str, Attr]:
    name = line.word("a name")
    line.want("=")
    return name, _value(line)


def _value(line: Line) -> Attr:
    if line.got("true"):
        return True
    if line.got("false"):
        return False
    if line.peek.kind == "string":
        return line.string()
    if not line.got("("):
        return line.number_value()
    numbers: list[int] = []
    while not line.got(")"):
        numbers.append(line.integer())
    return tuple(numbers)


def _attrs(line: Line) -> dict[str, Attr]:
    return dict(line.listed("}", lambda: _setting(line))) if line.got("{") else {}


def _axis(line: Line) -> AxisDecl:
    name = line.word("the name of an axis")
    return AxisDecl(name, line.word("the axis that it is nested in") if line.got("of") else "")


def _field(line: Line) -> FieldDecl:
    name = line.word("the name of a field")
    line.want(":")
    kind = line.take()
    if kind.text not in ("float", "int", "flag", "index"):
        line.fail(f"expected float, int, flag or index, got `{kind.text}`", kind)
    axis = ""
    if line.got("["):
        axis = line.word("an axis")
        line.want("]")
    columns = line.integer() if line.got("columns") else 1
    below = line.integer() if line.got("below") else 0
    of = line.word("an axis") if line.got("of") else ""
    return FieldDecl(name, kind.text, axis, columns, below, of, line.got("optional"))  # type: ignore[arg-type]  # checked above


def _param(line: Line) -> Param:
    name = line.word("the name of a parameter")
    line.want("[")
    shape = tuple(line.listed("]", line.integer))
    init, scale = line.word("how it is initialised"), float(line.number_value())
    cut: tuple[int, ...] = ()
    if line.got("cut"):
        line.want("[")
        cut = tuple(line.listed("]", line.integer))
    return Param(name, shape, init, scale, cut)


def _layer(line: Line) -> Layer:
    name = line.word("the name of a layer")
    line.want(":")
    form = line.word("the form of the layer")
    line.want("(")
    params = tuple(line.listed(")", lambda: _param(line)))
    replicas = line.integer() if line.got("replicas") else 1
    columns = line.integer() if line.got("columns") else 1
    rows = line.integer() if line.got("rows") else 1
    device = line.word("a device") if line.got("device") else ""
    settings = _attrs(line)
    for key, value in settings.items():
        if isinstance(value, tuple):
            line.fail(f"setting `{key}` is one value")
    return Layer(name, form, params, replicas, settings, device, columns, rows)  # type: ignore[arg-type]  # no tuples, as just checked


def _region(line: Line) -> Region:
    number = line.integer()
    line.want(":")
    form = line.take()
    if form.text not in ("instance", "loop", "each", "visit"):
        line.fail(f"expected instance, loop, each or visit, got `{form.text}`", form)
    axis = line.word("an axis") if line.got("over") else ""
    count = line.integer() if line.got("turns") else 0
    reverse = line.got("reverse")
    after: list[str] = []
    if line.got("after"):
        after.append(line.word("an index field"))
        while line.got(","):
            after.append(line.word("an index field"))
    parent = line.integer() if line.got("in") else -1
    name = line.word("a name") if line.got("name") else ""
    return Region(number, form.text, parent, axis, count, reverse, tuple(after), name)  # type: ignore[arg-type]  # checked above


STATEMENTS: dict[str, Callable[[Line], Any]] = {
    "graph": lambda line: line.word("the name of the graph"),
    "parameter": _setting,
    "train": _setting,
    "axis": _axis,
    "field": _field,
    "layer": _layer,
    "region": _region,
}

# ------------------------------------------------------------------------------------------------------------ nodes


def _index(line: Line, depth: int = 0) -> Index:
    if depth > MAX_NESTING:
        line.fail(f"an index goes through more than {MAX_NESTING} fields")
    if line.got("@"):
        return ir.Coord(line.integer())
    field = line.word("`@region` or an index field")
    line.want("[")
    at = _index(line, depth + 1)
    line.want("]")
    return ir.Through(field, at)


def _field_ref(line: Line) -> FieldRef:
    field = line.word("a field")
    if not line.got("["):
        return FieldRef(field)
    at = _index(line)
    line.want("]")
    return FieldRef(field, at)


def _operand(line: Line) -> Ref | FieldRef:
    if not line.got("%"):
        return _field_ref(line)
    node = line.integer()
    return node, line.integer() if line.got(":") else 0


def _type(line: Line) -> Type:
    if line.got("unit"):
        return Type()
    integer = line.got("int")
    line.want("[")
    rows = ""
    if line.got("*"):
        rows = "*"
    elif line.peek.kind != "number":
        rows = line.word("an axis or a number of columns")
    if rows:
        line.want(",")
    cols = line.integer()
    line.want("]")
    return Type(rows, cols, integer)


def _cases(line: Line) -> tuple[tuple[int, ...], ...]:
    line.want("(")
    cases: list[tuple[int, ...]] = []
    while not line.got("else"):
        case: list[int] = []
        while not line.got("|"):
            case.append(line.integer())
        cases.append(tuple(case))
    line.want(")")
    return tuple(cases)


def _test(line: Line) -> Test:
    line.want("by")
    kind = line.take()
    match kind.text:
        case "within":
            return ir.Within(line.integer())
        case "first":
            return ir.First(line.integer())
        case "match":
            return ir.Match(_field_ref(line), _cases(line))
        case "decided":
            line.want("%")
            return ir.Decided(line.integer(), _cases(line))
        case "dealt":
            return ir.Dealt(line.integer())
        case _:
            line.fail(f"expected within, first, match, decided or dealt, got `{kind.text}`", kind)


def _map(line: Line) -> ir.StateMap:
    kind = line.take()
    maps: dict[str, Callable[[int], ir.StateMap]] = {"enter": ir.Enter, "next": ir.Next, "leave": ir.Leave}
    if kind.text not in maps:
        line.fail(f"expected enter, next or leave, got `{kind.text}`", kind)
    return maps[kind.text](line.integer())


def _generator(line: Line) -> ir.Generator:
    if line.got("over"):
        return ir.Over(line.integer())
    line.want("dependents")
    region = line.integer()
    line.want("at")
    return ir.Dependents(region, _index(line))


def _number_after(line: Line, word: str, default: int) -> int:
    return line.integer() if line.got(word) else default


def _op_details(line: Line) -> dict[str, Any]:
    return {"attrs": _attrs(line)}


def _ppt_details(line: Line) -> dict[str, Any]:
    line.want("layer")
    return {"layer": line.word("a layer"), "attrs": _attrs(line)}


def _loss_details(line: Line) -> dict[str, Any]:
    return {"attrs": _attrs(line), "weight": float(line.number_value()) if line.got("weight") else 1.0}


def _to_details(line: Line) -> dict[str, Any]:
    line.want("to")
    return {"to": line.integer()}


def _group_details(line: Line) -> dict[str, Any]:
    return {"key": _index(line) if line.got("key") else None, "to": _number_after(line, "to", 0)}


KINDS: dict[str, tuple[Callable[..., AnyNode], Callable[[Line], dict[str, Any]]]] = {
    "source": (ir.Source, lambda line: {}),
    "ppt": (ir.PPT, _ppt_details),
    "npt": (ir.NPT, _op_details),
    "loss": (ir.Loss, _loss_details),
    "metric": (ir.Metric, _op_details),
    "output": (ir.Output, lambda line: {}),
    "cond": (ir.Cond, lambda line: {"test": _test(line)}),
    "phi": (ir.Phi, lambda line: {"test": _test(line)}),
    "isu": (ir.Isu, lambda line: {"map": _map(line)}),
    "concat": (ir.Concat, lambda line: {}),
    "split": (ir.Split, lambda line: {}),
    "bcast": (ir.Bcast, lambda line: {}),
    "flatmap": (ir.Flatmap, lambda line: {"to": _generator(line)}),
    "ungroup": (ir.Ungroup, _to_details),
    "group": (ir.Group, _group_details),
}
WITH_OP = ("ppt", "npt", "loss", "metric")


def _node(line: Line) -> AnyNode:
    number = line.integer()
    line.want("=")
    kind = line.take()
    if kind.text not in KINDS:
        line.fail(f"expected a kind of node ({', '.join(KINDS)}), got `{kind.text}`", kind)
    make, details = KINDS[kind.text]
    record: dict[str, Any] = {"op": line.word("an operation")} if kind.text in WITH_OP else {}
    line.want("(")
    inputs: list[Ref] = []
    fields: list[FieldRef] = []

    def operand() -> None:
        start = line.peek
        found = _operand(line)
        if isinstance(found, FieldRef):
            fields.append(found)
        else:
            inputs.append(found)
        if fields and (found is not fields[-1] or kind.text not in WITH_OP):
            line.fail("messages come before fields" if kind.text in WITH_OP else f"a {kind.text} reads no fields", start)

    line.listed(")", operand)
    if kind.text in WITH_OP:
        record["fields"] = tuple(fields)
    record |= details(line)
    outputs: list[Type] = []
    if line.got(":"):
        outputs.append(_type(line))
        while line.got(","):
            outputs.append(_type(line))
    line.want("in")
    region = line.integer()
    name = line.word("a name") if line.got("name") else ""
    origin: list[str] = []
    if line.got("from"):
        origin.append(line.string())
        while line.got(","):
            origin.append(line.string())
    return make(id=number, region=region, inputs=tuple(inputs), outputs=tuple(outputs), origin=tuple(origin), name=name, **record)
