"""The syntax tree: one frozen dataclass for each construct of `grammar/amp.lark`, each with its span.

The tree says what was written; names are resolved by `check`, shapes by `ampc.lower`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ampc.diagnostics import Span

# --------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    span: Span


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Text:
    """`"accuracy >= 0.97"`: only as the value of a setting or of a layer's option; `value` is without its quotes."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """`op` is '-' or 'not'."""

    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """`op` is one of + - * / // % ** < <= > >= == != and or."""

    op: str
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Keyword:
    name: str
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """`function(args, key = value)`; `function` is a builtin, a layer, or a `def` of the model.

    `member` is the index of a layer family: `message[k](x)`.
    """

    function: Name
    member: Expr | None
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Index:
    """`base[index]`: an element of a field or of a value over an axis."""

    base: Name
    index: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Slice:
    """`base[start:stop]`: columns of a value; either bound may be absent."""

    base: Expr
    start: Expr | None
    stop: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Join:
    """`[a, b, c]`: concatenation of columns."""

    parts: tuple[Expr, ...]
    span: Span


Expr = Number | Bool | Text | Name | Unary | Binary | Call | Index | Slice | Join

# ------------------------------------------------------------------------------------------------ instance


@dataclass(frozen=True, slots=True)
class Axis:
    """`axis child[node]`: `parent` is None for an axis of the instance itself."""

    name: str
    parent: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class Field:
    """`left, right: node[node] or none` gives two of these.

    `kind` is 'int', 'float', 'flag' (a bool) or the name of an axis (then the values are positions on that axis).
    `axis` is the axis that it lies over, or None; `columns` the width of a float (1 if not given);
    `below` the exclusive bound of an int; `optional` whether `or none` was written.
    """

    name: str
    kind: Name
    axis: Name | None
    columns: Expr | None
    below: Expr | None
    optional: bool
    span: Span


# -------------------------------------------------------------------------------------------- declarations


@dataclass(frozen=True, slots=True)
class Parameter:
    """`hidden = 128` of a model (always with a default) or an argument of a `def` (default None)."""

    name: str
    default: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Layer:
    """`message = Linear(hidden, hidden, bias = false) for kind in kinds`: `count` is the family's size, or None."""

    name: str
    kind: Name
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]
    index: Name | None
    count: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """`def gru(a, h): ... return x, y`, expanded in place at each call."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Stmt, ...]
    result: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of the `train:` block; `layer` is set in `embed.min_update_frequency = 1000`."""

    layer: Name | None
    name: str
    value: Expr
    span: Span


# ---------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign:
    """`h, c = f(x)` or `h, c = a, b`: as many values as targets, or one call with as many results."""

    targets: tuple[Name, ...]
    values: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`a[target[e]] += m` inside `each`; `reduce` is 'sum', 'mean' or 'max' (`+=`, `mean=`, `max=`)."""

    target: Name
    index: Expr
    reduce: str
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Loop:
    """`loop t in token carry h, c:` / `loop t in range(4) carry h:` / `loop while e at most 32 carry h:`.

    `variable` is None only in the while form without `t`; exactly one of `axis`, `count`, `condition` is set, and `at_most`
    goes with `condition`. `reverse` is set by `loop t in reversed(token)`.
    """

    variable: Name | None
    axis: Name | None
    count: Expr | None
    condition: Expr | None
    at_most: Expr | None
    reverse: bool
    carry: tuple[Name, ...]
    body: tuple[Stmt, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Each:
    """`each e in edge:`"""

    variable: Name
    axis: Name
    body: tuple[Stmt, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Visit:
    """`visit n in node after left[n], right[n] carry h, c:`"""

    variable: Name
    axis: Name
    after: tuple[Expr, ...]
    carry: tuple[Name, ...]
    body: tuple[Stmt, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Arm:
    """`none:`, `else:`, `true:`, `false:` or `0, 3:` of a branch; `key` is 'none', 'else' or the tuple of integers."""

    key: str | tuple[int, ...]
    body: tuple[Stmt, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Branch:
    """`branch kind[b] as k: ... merge m`.

    With `variable` set the block has no arms: `arms` then holds one arm with the key 'each', written once for all values.
    `merge` names the values that live on; empty when the arms only hold losses or metrics.
    """

    selector: Expr
    variable: Name | None
    arms: tuple[Arm, ...]
    merge: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Loss:
    """`loss cross_entropy(logits, label)`"""

    call: Call
    span: Span


@dataclass(frozen=True, slots=True)
class Metric:
    """`metric accuracy(logits, label)` or `metric name = accuracy(logits, label)`; without a name, `name` is ""."""

    name: str
    call: Call
    span: Span


@dataclass(frozen=True, slots=True)
class Output:
    """`output y = expression` or `output logits`: what a prediction returns, by name."""

    name: str
    value: Expr
    span: Span


Stmt = Assign | Accumulate | Loop | Each | Visit | Branch | Loss | Metric | Output


@dataclass(frozen=True, slots=True)
class Model:
    """A whole program. `body` keeps the order of statements; declarations are sorted out by kind."""

    name: str
    parameters: tuple[Parameter, ...]
    axes: tuple[Axis, ...]
    fields: tuple[Field, ...]
    layers: tuple[Layer, ...]
    functions: tuple[Function, ...]
    settings: tuple[Setting, ...]
    body: tuple[Stmt, ...]
    span: Span


def walk(body: tuple[Stmt, ...]) -> list[Stmt]:
    """Return all statements of a body, those inside blocks too."""
    out: list[Stmt] = []
    for s in body:
        out.append(s)
        match s:
            case Loop() | Each() | Visit():
                out += walk(s.body)
            case Branch():
                for arm in s.arms:
                    out += walk(arm.body)
            case _:
                pass
    return out
