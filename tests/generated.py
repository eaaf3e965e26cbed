"""Random programs: loops, branches, `each`, `visit`, sums over axes, functions, nested in each other, over one rich kind of instance.

All values are rows of three columns (or one such row for each element of an axis), so that any expression fits any other.
"""

from __future__ import annotations

import dataclasses
import random

HEAD = """model generated():
    instance:
        axis token, node, edge, child[node]
        x: float[token, 3]
        v: float[node, 3]
        m: float[edge, 3]
        c: float[child, 3]
        z: float[3]
        word: int[token] < 4 or none
        mark: int[node] < 2
        kind: int[edge] < 3
        k: int < 3
        hot: flag
        source, target: node[edge]
        away: node[edge] or none
        left, right: node[node] or none
        kid: node[child]
        maybe: float or none
        y: float

    a = Linear(3, 3)
    b = Linear(6, 3)
    s = Linear(3, 1)
    e = Embedding(4, 3)
    w = Linear(3, 3) for i in 3
    norm = LayerNorm(3)

    def cell(p, q):
        g = sigmoid(a(p + q))
        return g * p + (1 - g) * q, tanh(b([p, q]))

"""


@dataclasses.dataclass
class Place:
    """Where code is written: names of rows, of values over nodes, and the element variables that are open there."""

    rows: list[str]
    whole: list[str] = dataclasses.field(default_factory=list)
    token: str = ""
    node: str = ""
    edge: str = ""
    carried: list[str] = dataclasses.field(default_factory=list)
    member: str = ""
    depth: int = 0
    plain: bool = True  # no element of an axis is open

    def inner(self, **changes: object) -> Place:
        made = dataclasses.replace(self, rows=list(self.rows), whole=list(self.whole), depth=self.depth + 1)
        return dataclasses.replace(made, **changes)


class Writer:
    """Writes one program from the draws of `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.names = 0

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def program(self) -> str:
        place = Place(["z"], ["v"])
        for _ in range(self.rng.randint(2, 4)):
            self.statement(place, 1)
        total = self.rng.choice(place.rows)
        self.put(1, f"loss squared(sum({total}) + sum(sum(node, {self.rng.choice(place.whole)})), y)")
        self.put(1, f"output last = {self.row(place, 1)}")
        return HEAD + "\n".join(self.lines) + "\n"

    def put(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    # ------------------------------------------------------------------------------------------------- expressions

    def row(self, p: Place, depth: int) -> str:
        """Return an expression for a row of three columns."""
        leaves = [*p.rows, "zeros(3)"]
        if p.token:
            leaves += [f"x[{p.token}]"] * 2 + [f"e(word[{p.token}])"]
        if p.node:
            leaves += [f"v[{p.node}]", *(f"{n}[{p.node}]" for n in p.whole if n != "v")]
            leaves += [f"{n}[left[{p.node}]]" for n in p.whole]
            leaves += [f"{h}[{f}[{p.node}]]" for h in p.carried for f in ("left", "right")] * 2
            leaves += [f"sum(child, {h}[kid] * c)" for h in p.carried]
            leaves += [f"{how}(child, c)" for how in ("sum", "mean", "max")]
        if p.edge:
            leaves += [f"m[{p.edge}]", *(f"{n}[{f}[{p.edge}]]" for n in p.whole for f in ("source", "target", "away"))]
        if p.plain:
            leaves += [f"{how}(node, {n})" for n in p.whole for how in ("sum", "mean", "max")] + [f"sum(node, softmax(node, s({p.whole[-1]})) * v)"]
        if depth <= 0 or self.rng.random() < 0.2:
            return self.rng.choice(leaves)
        q = self.row(p, depth - 1)
        match self.rng.randrange(11):
            case 0:
                return f"{self.rng.choice(['tanh', 'relu', 'sigmoid', 'norm', 'stop_gradient'])}({q})"
            case 1 | 2:
                return f"a({q})" if not p.member else f"w[{p.member}]({q})"
            case 3:
                return f"b([{q}, {self.row(p, depth - 1)}])"
            case 4:
                return f"({q} {self.rng.choice('+-*')} {self.row(p, depth - 1)})"
            case 5:
                return f"(2 * {q} - 0.5)"
            case 6:
                return f"pad(({q})[0:2], 3)"
            case 7:
                return f"[({q})[1:3], s({self.row(p, depth - 1)})]"
            case 8:
                return f"(tanh({q}) * s({self.row(p, depth - 1)}))"
            case 9:
                return f"maximum({q}, {self.row(p, depth - 1)})"
            case _:
                return f"({q} / (1 + square({self.row(p, depth - 1)})))"

    # -------------------------------------------------------------------------------------------------- statements

    def statement(self, p: Place, indent: int) -> None:
        """Write one statement; names that live on are added to the place."""
        kinds = ["assign", "call"]
        if p.depth < 3:
            kinds += ["loop", "branch", "while", "computed", "members"] + (["each_node", "each_edge", "visit"] * 2 if p.plain else [])
        getattr(self, f"_{self.rng.choice(kinds)}")(p, indent)

    def block(self, p: Place, indent: int, most: int = 2) -> None:
        for _ in range(self.rng.randint(1, most)):
            self.statement(p, indent)

    def _assign(self, p: Place, indent: int) -> None:
        name, value = self.fresh("h"), self.row(p, 2)
        self.put(indent, f"{name} = {value}")
        p.rows.append(name)

    def _call(self, p: Place, indent: int) -> None:
        first, second = self.fresh("h"), self.fresh("h")
        self.put(indent, f"{first}, {second} = cell({self.row(p, 1)}, {self.row(p, 1)})")
        p.rows += [first, second]

    def _carry(self, p: Place, indent: int) -> str:
        name = self.fresh("h")
        self.put(indent, f"{name} = {self.row(p, 1)}")
        return name

    def _loop(self, p: Place, indent: int) -> None:
        name, t = self.fresh("h"), self.fresh("t")
        self.put(indent, f"{name} = {self.row(p, 1)}")
        domain = self.rng.choice(["token", "reversed(token)", "range(2)", "range(0)", "range(3)"])
        self.put(indent, f"loop {t} in {domain} carry {name}:")
        inner = p.inner(token=t if "token" in domain else p.token)
        inner.rows.append(name)
        self.block(inner, indent + 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)})")
        p.rows.append(name)

    def _while(self, p: Place, indent: int) -> None:
        name = self._carry(p, indent)
        self.put(indent, f"loop while sum({name}) {self.rng.choice('<>')} {self.rng.choice(['0.3', f'sum({self.row(p, 1)})'])} at most {self.rng.randint(1, 4)} carry {name}:")
        inner = p.inner()
        inner.rows.append(name)
        self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = {name} * 0.7 + 0.2 * tanh({self.row(inner, 2)})")
        p.rows.append(name)

    def _arms(self, p: Place, indent: int, keys: list[str], name: str) -> None:
        for key in keys:
            self.put(indent + 1, f"{key}:")
            inner = p.inner()
            if self.rng.random() < 0.5:
                self.block(inner, indent + 2, 1)
            self.put(indent + 2, f"{name} = {self.row(inner, 2)}")
        self.put(indent, f"merge {name}")
        p.rows.append(name)

    def _branch(self, p: Place, indent: int) -> None:
        choices = [("k", ["0", "1, 2"]), ("k", ["2", "else"]), ("hot", ["true", "false"]), ("maybe", ["none", "else"])]
        if p.token:
            choices += [(f"word[{p.token}]", ["none", "0, 1", "else"])] * 3
        if p.node:
            choices += [(f"mark[{p.node}]", ["1", "0"]), (f"left[{p.node}]", ["none", "else"])] * 3
        if p.edge:
            choices += [(f"kind[{p.edge}]", ["0", "1", "2"]), (f"away[{p.edge}]", ["none", "else"])] * 3
        selector, keys = self.rng.choice(choices)
        self.put(indent, f"branch {selector}:")
        self._arms(p, indent, keys, self.fresh("h"))

    def _computed(self, p: Place, indent: int) -> None:
        test = self.rng.choice([f"sum({self.row(p, 1)}) < 0.1", f"s({self.row(p, 1)}) > s({self.row(p, 1)}) or not sum({self.row(p, 0)}) >= 0"])
        self.put(indent, f"branch {test}:")
        self._arms(p, indent, ["true", "else"], self.fresh("h"))

    def _members(self, p: Place, indent: int) -> None:
        name, i = self.fresh("h"), self.fresh("i")
        selectors = ["k", f"argmax({self.row(p, 1)})"] + ([f"kind[{p.edge}]"] * 3 if p.edge else [])
        self.put(indent, f"branch {self.rng.choice(selectors)} as {i}:")
        inner = p.inner(member=i)
        self.put(indent + 1, f"{name} = {self.rng.choice(['', 'tanh'])}(w[{i}]({self.row(inner, 1)}))")
        self.put(indent, f"merge {name}")
        p.rows.append(name)

    def _each_node(self, p: Place, indent: int) -> None:
        i, name = self.fresh("n"), self.fresh("g")
        self.put(indent, f"each {i} in node:")
        inner = p.inner(node=i, plain=False)
        self.block(inner, indent + 1)
        self.put(indent + 1, f"{name} = {self.row(inner, 2)}")
        if self.rng.random() < 0.3:
            self.put(indent + 1, f"loss squared(sum({name}), {self.rng.choice(['y', f'sum(v[{i}])'])}, weight = 0.1)")
        p.whole.append(name)

    def _each_edge(self, p: Place, indent: int) -> None:
        i, name = self.fresh("j"), self.fresh("g")
        self.put(indent, f"each {i} in edge:")
        inner = p.inner(edge=i, plain=False)
        self.block(inner, indent + 1)
        how = self.rng.choice(["+=", "+=", "mean=", "max="])
        self.put(indent + 1, f"{name}[{self.rng.choice(['target', 'source', 'away'])}[{i}]] {how} {self.row(inner, 2)}")
        if how == "+=" and self.rng.random() < 0.5:
            self.put(indent + 1, f"{name}[source[{i}]] += {self.row(inner, 1)}")
        p.whole.append(name)

    def _visit(self, p: Place, indent: int) -> None:
        i, name = self.fresh("n"), self.fresh("g")
        self.put(indent, f"visit {i} in node after left[{i}], right[{i}], kid[{i}] carry {name}:")
        inner = p.inner(node=i, carried=[name], plain=False)
        first = self.fresh("h")
        self.put(indent + 1, f"{first} = tanh({self.row(inner, 2)})")
        inner.rows.append(first)
        flat = inner.inner(carried=[])
        self.block(flat, indent + 1)
        self.put(indent + 1, f"{name} = tanh(a(v[{i}]) + {self.row(dataclasses.replace(flat, carried=[name]), 2)})")
        p.whole.append(name)


def generate(rng: random.Random) -> str:
    """Return a random program."""
    return Writer(rng).program()
