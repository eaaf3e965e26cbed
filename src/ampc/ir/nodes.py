"""The node kinds of the IR: AMPNet's (Gaunt et al., arXiv 1705.09786, section 4), declared as data.

A graph is static. What moves through it is a message: a payload (rows x columns) with a state. The state is a tuple of small
integers known at compile time: the instance, then one coordinate for each region that the node lies in (a loop's turn, an
element of an axis). The rule that the whole system rests on: *each forward message with state s that a node emits is answered by exactly
one backward message with state s*.

| node | forward | backward |
| --- | --- | --- |
| Source | one unit message when an instance is admitted | the instance retires |
| PPT | y = f(x; w) | dx; the gradient of w is accumulated; the layer may update itself |
| NPT | y = f(x) | dx |
| Loss, Metric, Output | take a message and record it | a gradient (of a Loss) or zero |
| Cond | to the output that `test` picks for the state | passes on |
| Phi | from whichever input to the one output | to the input that the message came from |
| Isu | changes the state | undoes the change |
| Concat, Split | join and part columns | part and join them |
| Bcast | copies to every output | the sum, once all outputs have answered |
| Flatmap | one message to many states, the payload replicated | the sum, once all have answered |
| Ungroup | rows of one message to many states | stacks them |
| Group | many states to one message of stacked rows | unstacks them |

Reading a field of the instance needs no message: the state names the instance and the element.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Attr = int | float | str | bool | tuple[int, ...]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all IR data: immutable, compared by value, refuses unknown keys when read from a manifest."""


class Tagged(Struct, frozen=True, tag=True, tag_field="kind"):
    """A member of a closed set; its class name is its `kind` in a manifest."""


# ------------------------------------------------------------------------------------------------- payloads


class Type(Struct, frozen=True):
    """Payload type: `rows` is "" for a single row, an axis for one row an element, or "*" for as many as a Group collected.

    `cols` is a constant; a unit message (pure trigger) has 0 columns. `integer` payloads carry no gradient.
    """

    rows: str = ""
    cols: int = 0
    integer: bool = False


# -------------------------------------------------------------------------------------------------- regions


class Region(Struct, frozen=True):
    """A scope of states. A state of the region is a state of its parent and one coordinate.

    instance: the root, no coordinate. loop: turn 0, 1, ...; each and visit: an element of `axis`.
    `axis` gives the extent, else `count` does (loops over `range(n)`; `at most n` loops).
    `after` (visit only): the index fields whose elements must fire first.
    """

    id: int
    form: Literal["instance", "loop", "each", "visit"]
    parent: int = -1
    axis: str = ""
    count: int = 0
    reverse: bool = False
    after: tuple[str, ...] = ()
    name: str = ""


# ------------------------------------------------------------------------- what a state tells without a message


class Coord(Tagged, frozen=True):
    """The element of its axis that a state of `region` is at (the turn, for a loop over `range`)."""

    region: int


class Through(Tagged, frozen=True):
    """The value of index field `field` at element `at`: `source[e]`."""

    field: str
    at: Index


Index = Coord | Through


class FieldRef(Struct, frozen=True):
    """A field of the instance, read through the state: at element `at`, or whole (`at` None).

    A field of the instance itself is one row. A field over an axis read whole has a row for each element.
    """

    field: str
    at: Index | None = None


# ---------------------------------------------------------------------------------------- tests and state maps


class Within(Tagged, frozen=True):
    """Output 0 while the turn of loop `region` is below its extent, else output 1."""

    region: int


class First(Tagged, frozen=True):
    """Input 0 at turn 0 of loop `region`, else input 1."""

    region: int


class Match(Tagged, frozen=True):
    """Port i if the field's value is in `cases[i]`, else the last port (`cases` has one entry fewer). `none` is -1."""

    ref: FieldRef
    cases: tuple[tuple[int, ...], ...]


class Decided(Tagged, frozen=True):
    """Port i if the integer that node `by` computed for this state is in `cases[i]`, else the last port."""

    by: int
    cases: tuple[tuple[int, ...], ...]


class Dealt(Tagged, frozen=True):
    """Port i of `count` for the instances that are dealt to copy i of a layer: the admissions are counted, and dealt in turn."""

    count: int


Test = Within | First | Match | Decided | Dealt


class Enter(Tagged, frozen=True):
    """p -> (p, 0) of loop `region`."""

    region: int


class Next(Tagged, frozen=True):
    """(p, t) -> (p, t + 1)."""

    region: int


class Leave(Tagged, frozen=True):
    """(p, t) -> p."""

    region: int


StateMap = Enter | Next | Leave


class Over(Tagged, frozen=True):
    """p -> (p, e) for every element (or turn) of `region`, whose parent is the region of p."""

    region: int


class Dependents(Tagged, frozen=True):
    """(p, m) -> (p, n) of `region` for every n whose index field at `at` equals m; n increases."""

    region: int
    at: Index


Generator = Over | Dependents

# ---------------------------------------------------------------------------------------------------- nodes

Ref = tuple[int, int]
"""An output of a node: (node id, output port)."""


class Node(Tagged, frozen=True, kw_only=True):
    """What all nodes share. `region` is where its *inputs'* states live (Isu, Flatmap, Group and Ungroup say where they go).

    `inputs[i]` is the output port that feeds input port i; each output port feeds exactly one input port.
    `outputs` are the payload types. `origin` holds the source places ("model.amp:12:5"), most specific first.
    """

    id: int
    region: int = 0
    inputs: tuple[Ref, ...] = ()
    outputs: tuple[Type, ...] = ()
    origin: tuple[str, ...] = ()
    name: str = ""


class Source(Node, frozen=True, kw_only=True):
    """The controller: one unit output, sent when an instance is admitted."""


class PPT(Node, frozen=True, kw_only=True):
    """Parameterised payload transform `op` with the parameters of `layer`. Reads `fields` beside its messages."""

    op: str
    layer: str
    fields: tuple[FieldRef, ...] = ()
    attrs: dict[str, Attr] = {}


class NPT(Node, frozen=True, kw_only=True):
    """Payload transform without parameters. Operands are the messages, then `fields`; an op with neither has a unit input."""

    op: str
    fields: tuple[FieldRef, ...] = ()
    attrs: dict[str, Attr] = {}


class Loss(Node, frozen=True, kw_only=True):
    """Adds `weight` times the loss `op` of its operands (messages, then fields) to the instance's loss; no output."""

    op: str
    fields: tuple[FieldRef, ...] = ()
    attrs: dict[str, Attr] = {}
    weight: float = 1.0


class Metric(Node, frozen=True, kw_only=True):
    """Adds to the counts of metric `op`; answers with zero."""

    op: str
    fields: tuple[FieldRef, ...] = ()
    attrs: dict[str, Attr] = {}


class Output(Node, frozen=True, kw_only=True):
    """Records its message as the prediction `name`; answers with zero."""


class Cond(Node, frozen=True, kw_only=True):
    test: Test


class Phi(Node, frozen=True, kw_only=True):
    """`test` tells, from the state alone, which input a message came from."""

    test: Test


class Isu(Node, frozen=True, kw_only=True):
    """`region` is that of the input's state; `map` leads to the output's."""

    map: StateMap


class Concat(Node, frozen=True, kw_only=True):
    pass


class Split(Node, frozen=True, kw_only=True):
    """Output port i carries the next `outputs[i].cols` columns."""


class Bcast(Node, frozen=True, kw_only=True):
    pass


class Flatmap(Node, frozen=True, kw_only=True):
    to: Generator


class Ungroup(Node, frozen=True, kw_only=True):
    """Row e of the input at p goes to the state of `to` that stands at the e-th element: (p, e), or from the far end in a reversed loop."""

    to: int


class Group(Node, frozen=True, kw_only=True):
    """Stacks the messages on input 0 (states of `region`) that share a key into one, in order of their elements.

    `key` None: all elements (or turns) of `region`; the result is at the parent state and has one row an element.
    `key` an index: the elements that point at m; the result is at (p, m) of region `to`, with "*" rows, perhaps none. Where the key is the
    implied `parent` field of a nested axis, the rows are those of that axis.
    Input 1 is a unit message at the *result's* state: it says that the group exists, so that an empty one completes too.
    """

    key: Index | None = None
    to: int = 0


AnyNode = Source | PPT | NPT | Loss | Metric | Output | Cond | Phi | Isu | Concat | Split | Bcast | Flatmap | Ungroup | Group
