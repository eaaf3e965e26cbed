"""Random programs over sequences, graphs, trees and DAGs: loops, branches, `each`, `visit` in both directions, sums and attention over axes."""

from __future__ import annotations

from collections.abc import Sequence

from .writer import Place, Writer

HEAD = """model generated():
    instance:
        axis token, node, edge, child[node], over[node]
        x: float[token, 3]
        v: float[node, 3]
        m: float[edge, 3]
        c: float[child, 3]
        z: float[3]
        word: int[token] < 4 or none
        mark: int[node] < 2
        kind: int[edge] < 3
        sort: int[child] < 3
        k: int < 3
        hot: flag
        source, target: node[edge]
        away: node[edge] or none
        left, right: node[node] or none
        kid: node[child]
        up: node[over]
        root: node or none
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


class Graphs(Writer):
    """`up` leads to later nodes, `kid`, `left` and `right` to earlier ones: visits go through the nodes in both directions."""

    head, columns, score = HEAD, 3, "s"

    def start(self) -> Place:
        return Place(["z"], {"node": ["v"], "token": ["x"]})

    def end(self, p: Place) -> None:
        over = self.rng.choice(p.over["node"])
        self.put(1, f"loss squared(sum({self.rng.choice(p.rows)}) + sum(sum(node, {over})), y)")
        self.put(1, f"output last = {self.row(p, 1)}")
        self.put(1, f"output all = {over} * 1")

    def judge(self, p: Place, indent: int) -> None:
        target = self.pick("y", *(f"sum(v[{n}])" for axis, n in p.open.items() if axis == "node"))
        self.put(indent, f"loss squared(sum({self.row(p, 1)}), {target}, weight = 0.1)")

    def leaves(self, p: Place) -> list[str]:
        found = [*p.rows, "zeros(3)"]
        if t := p.open.get("token"):
            found += [f"{x}[{t}]" for x in p.over["token"]] * 2 + [f"e(word[{t}])", f"sin(number({t}) * z)"]
        if n := p.open.get("node"):
            found += [f"{g}[{n}]" for g in p.over["node"]] + [f"{g}[{f}[{n}]]" for g in p.over["node"] for f in ("left", "right")]
            found += [f"{how}(child, c)" for how in ("sum", "mean", "max")] + [f"sum(child, softmax(child, s(c)) * {p.over['node'][-1]}[kid])"]
            found += [f"z * number({n})"]
            if not p.open.get("child"):
                found += [leaf for h in p.carried for leaf in self.carried(h, n)] * 2
        if c := p.open.get("child"):
            found += [f"c[{c}]"] + [f"{h}[kid[{c}]]" for h in p.carried if "kid" in self.waits] * 3
        if e := p.open.get("edge"):
            found += [f"m[{e}]", *(f"{g}[{f}[{e}]]" for g in p.over["node"] for f in ("source", "target", "away"))]
        if p.plain:
            found += [f"{how}(node, {g})" for g in p.over["node"] for how in ("sum", "mean", "max")]
            found += [f"sum(node, softmax(node, s({p.over['node'][-1]})) * v)", f"{p.over['node'][-1]}[root]", f"max(token, {p.over['token'][-1]})"]
            found += [f"sum(token, softmax(token, dot({p.over['token'][-1]}, {p.rows[-1]})) * x)"]
        return found

    waits: tuple[str, ...] = ()
    """The fields that the open visit waits for."""

    def carried(self, h: str, n: str) -> list[str]:
        """Return what can be read of the elements that an open visit waits for."""
        found = [f"{h}[{f}[{n}]]" for f in ("left", "right") if f in self.waits]
        for axis, field, factor in (("child", "kid", " * c"), ("over", "up", "")):
            if field in self.waits:
                found += [f"{how}({axis}, {h}[{field}]{factor})" for how in ("sum", "mean", "max")]
                found += [f"sum({axis}, softmax({axis}, dot({h}[{field}], v[{n}])) * {h}[{field}])"]
        return found

    def row(self, p: Place, depth: int) -> str:
        if depth <= 0 or self.maybe(0.2):
            return self.rng.choice(self.leaves(p))
        q = self.row(p, depth - 1)
        match self.rng.randrange(12):
            case 0:
                return f"{self.pick('tanh', 'relu', 'sigmoid', 'norm', 'stop_gradient')}({q})"
            case 1 | 2:
                return f"w[{p.member}]({q})" if p.member else f"a({q})"
            case 3:
                return f"b([{q}, {self.row(p, depth - 1)}])"
            case 4:
                return f"({q} {self.pick(*'+-*')} {self.row(p, depth - 1)})"
            case 5:
                return f"(2 * {q} - 0.5)"
            case 6:
                return f"pad(({q})[0:2], 3)"
            case 7:
                return f"[({q})[1:3], s({self.row(p, depth - 1)})]"
            case 8:
                return f"(tanh({q}) * s({self.row(p, depth - 1)}))"
            case 9:
                return f"{self.pick('maximum', 'minimum')}({q}, {self.row(p, depth - 1)})"
            case 10:
                return f"(softmax({q}) * {self.pick('mean', 'max', 'sum')}({self.row(p, depth - 1)}))"
            case _:
                return f"({q} / (1 + square({self.row(p, depth - 1)})))"

    def statements(self, p: Place) -> list[str]:
        found = ["assign", "call", "loop", "branch", "while", "computed", "members"]
        if p.plain:
            found += ["each_node", "each_edge", "each_token", "visit", "visit"] * 2
        if "node" in p.open and "child" not in p.open:
            found += ["loop_children", "each_child"] * (2 if p.carried else 1)
        return found

    def domains(self, p: Place) -> list[tuple[str, str]]:
        turns: list[tuple[str, str]] = [("range(2)", ""), ("range(0)", ""), ("range(3)", "")]
        return turns + ([] if "token" in p.open else [("token", "token"), ("reversed(token)", "token")])

    def selectors(self, p: Place) -> list[tuple[str, Sequence[str]]]:
        found: list[tuple[str, Sequence[str]]] = [("k", ["0", "1, 2"]), ("k", ["2", "else"]), ("hot", ["true", "false"]), ("maybe", ["none", "else"]), ("root", ["none", "else"])]
        if t := p.open.get("token"):
            found += [(f"word[{t}]", ["none", "0, 1", "else"])] * 3
        if n := p.open.get("node"):
            found += [(f"mark[{n}]", ["1", "0"]), (f"left[{n}]", ["none", "else"])] * 3
        if e := p.open.get("edge"):
            found += [(f"kind[{e}]", ["0", "1", "2"]), (f"away[{e}]", ["none", "else"])] * 3
        if c := p.open.get("child"):
            found += [(f"sort[{c}]", ["0, 2", "1"])] * 3
        return found

    def families(self, p: Place) -> list[str]:
        kinds = [f"{field}[{p.open[axis]}]" for axis, field in (("edge", "kind"), ("child", "sort")) if axis in p.open]
        return ["k", f"argmax({self.row(p, 1)})", *kinds * 3]

    def member(self, k: str, p: Place) -> str:
        return f"w[{k}]({self.row(p, 1)})"

    # --------------------------------------------------------------------------------------------------- statements

    def _call(self, p: Place, indent: int) -> None:
        first, second = self.fresh("h"), self.fresh("h")
        self.put(indent, f"{first}, {second} = cell({self.row(p, 1)}, {self.row(p, 1)})")
        p.rows += [first, second]

    def _each_node(self, p: Place, indent: int) -> None:
        self.each("node", p, indent)

    def _each_token(self, p: Place, indent: int) -> None:
        self.each("token", p, indent)

    def _each_edge(self, p: Place, indent: int) -> None:
        self.gather("edge", "node", ("source", "target", "away"), p, indent)

    def _loop_children(self, p: Place, indent: int) -> None:
        """From child to child of the open node."""
        name, c = self._carry(p, indent), self.fresh("c")
        self.put(indent, f"loop {c} in {self.pick('child', 'reversed(child)')} carry {name}:")
        inner = p.inner(name, open={"child": c})
        if self.maybe(0.4):
            self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)} + {name})")
        p.rows.append(name)

    def _each_child(self, p: Place, indent: int) -> None:
        """A value for each child of the open node, and what becomes of all of them."""
        c, name, total = self.fresh("c"), self.fresh("o"), self.fresh("h")
        self.put(indent, f"each {c} in child:")
        inner = p.inner(open={"child": c})
        if self.maybe(0.4):
            self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = {self.row(inner, 2)}")
        self.put(indent, f"{total} = {self.pick(f'sum(child, {name})', f'mean(child, {name})', f'max(child, {name})', f'sum(child, softmax(child, s({name})) * {name})')}")
        p.rows.append(total)

    def _visit(self, p: Place, indent: int) -> None:
        n, name = self.fresh("n"), self.fresh("g")
        self.waits = self.pick(("left", "right", "kid"), ("left", "right"), ("kid",), ("up",), ("up",))
        self.put(indent, f"visit {n} in node after {', '.join(f'{f}[{n}]' for f in self.waits)} carry {name}:")
        inner = p.inner(open={"node": n}, carried=[name])
        first = self.fresh("h")
        self.put(indent + 1, f"{first} = tanh({self.row(inner, 2)})")
        inner.rows.append(first)
        self.block(inner, indent + 1)
        self.put(indent + 1, f"{name} = tanh(a(v[{n}]) + {self.rng.choice(self.carried(name, n))} + {self.row(inner, 2)})")
        p.over["node"].append(name)
