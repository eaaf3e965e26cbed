"""How ampc's cost grows: with the size of an instance, the columns of a layer, the number of layers, the instances in flight. One worker, training.

Costs are processor time; an exponent is the slope of a straight line through the logarithms, of each round by itself. Two workers against one are
in the parts about training.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import list_reduction
from benchmarks.harness import Comparison, Contender, compare, lengths, number, options, wanted
from benchmarks.ours import CACHE, Ours, providers
from benchmarks.report import Goal, Table, publish

SIZES = (10, 100, 1000, 10_000, 100_000)
ELEMENTS = 400_000
"""Of all instances of one size together; at least four instances."""
HIDDENS = (32, 128, 512)
LAYERS = (4, 16, 32)
IN_FLIGHT = (1, 4, 16, 64, 256, 1024)

CHAIN = """
model chain():
    instance:
        axis token
        x: float[token]
        y: float
    step = Linear(33, 32)
    head = Linear(32, 1)
    h = zeros(32)
    loop t in token carry h:
        h = tanh(step([x[t], h]))
    loss squared(head(h), y)
"""

GRAPH = """
model graph():
    instance:
        axis node, edge
        x: float[node]
        source, target: node[edge]
        y: float
    along = Linear(32, 32)
    new   = Linear(64, 32)
    head  = Linear(32, 1)
    h = pad(x, 32)
    loop t in range(2) carry h:
        each e in edge:
            m = along(h[source[e]])
            a[target[e]] += m
        h = tanh(new([a, h]))
    loss squared(sum(node, head(h)), y)
"""

TREE = """
model tree():
    instance:
        axis node
        x: float[node]
        left, right: node[node] or none
        y: float
    leaf = Linear(1, 32)
    join = Linear(64, 32)
    head = Linear(32, 1)
    visit n in node after left[n], right[n] carry h:
        branch left[n]:
            none: h = tanh(leaf(x[n]))
            else: h = tanh(join([h[left[n]], h[right[n]]]))
        merge h
    loss squared(sum(node, head(h)), y)
"""


def random_tree(rng: np.random.Generator, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the children of each of `size` nodes, an odd number, -1 for none: binary, cut at random, children before their parent."""
    left, right = np.full(size, -1), np.full(size, -1)
    todo = [(0, size)]
    while todo:
        begin, count = todo.pop()  # nodes begin ... begin + count - 1; the last is the root
        if count > 1:
            first = 2 * int(rng.integers(0, count // 2)) + 1
            root = begin + count - 1
            left[root], right[root] = begin + first - 1, root - 1
            todo += [(begin, first), (begin + first, count - 1 - first)]
    return left, right


def deep(layers: int) -> str:
    """Return a perceptron of so many layers of 32 columns."""
    declared = "".join(f"    l{i} = Linear(32, 32)\n" for i in range(layers))
    used = "".join(f"    h = tanh(l{i}(h))\n" for i in range(layers))
    instance = "    instance:\n        x: float[32]\n        y: float\n"
    return f"\nmodel deep():\n{instance}{declared}    head = Linear(32, 1)\n    h = x\n{used}    loss squared(head(h), y)\n"


def written(name: str, size: int) -> str:
    """Write random instances of `size` elements (of a perceptron: 0); return the file's path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(CACHE) / "scaling" / f"{name}-{size}.parquet"
    if path.exists():
        return str(path)
    rng = np.random.default_rng(size)
    n = max(4, ELEMENTS // size) if size else 4096
    y = pa.array(rng.normal(size=n).astype(np.float32))

    def lists(make: Any, kind: Any) -> Any:
        values = np.concatenate([make() for _ in range(n)])
        none = values < 0 if pa.types.is_integer(kind) else None
        return pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * (len(values) // n), pa.array(values, kind, mask=none))

    if not size:
        columns = {"x": lists(lambda: rng.normal(size=32), pa.float32()), "y": y}
    elif name == "chain":
        columns = {"x": lists(lambda: rng.normal(size=size), pa.float32()), "y": y}
    elif name == "tree":
        nodes = size - 1 + size % 2  # a binary tree has an odd number
        columns = {"x": lists(lambda: rng.normal(size=nodes), pa.float32()), "y": y}
        trees = [random_tree(rng, nodes) for _ in range(n)]
        for field, side in (("left", 0), ("right", 1)):
            column = iter(trees)
            columns[field] = lists(lambda column=column, side=side: next(column)[side], pa.int64())
    else:
        columns = {"x": lists(lambda: rng.normal(size=size), pa.float32()), "y": y}
        columns |= {field: lists(lambda: rng.integers(0, size, 2 * size), pa.int64()) for field in ("source", "target")}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def contenders() -> list[Contender]:
    common: dict[str, Any] = {"workers": 1, "blas": providers()[0], "optimizer": "sgd", "learning_rate": 0.0, "min_update_frequency": 10**6}
    made = []
    for name, text in (("chain", CHAIN), ("tree", TREE), ("graph", GRAPH)):
        for size in SIZES:
            arguments = {"model": text, "data": written(name, size), "max_active_keys": 4, **common}
            made.append(Contender(f"{name} of {size:,}", Ours, arguments))
    for layers in LAYERS:
        arguments = {"model": deep(layers), "data": written("deep", 0), "max_active_keys": 64, **common}
        made.append(Contender(f"{layers} layers", Ours, arguments))
    data = list_reduction.folder()
    base = {"model": list_reduction.MODEL, "data": data, "workers": 1, "blas": providers()[0], **list_reduction.SETTINGS}
    made += [Contender(f"{h} columns", Ours, {**base, "overrides": {"hidden": h}, "told": True}) for h in HIDDENS]
    return made + [Contender(f"{k:,} in flight", Ours, {**base, "max_active_keys": k}) for k in IN_FLIGHT]


def exponent(c: Comparison, names: list[str], sizes: tuple[int, ...]) -> tuple[float, float, float]:
    """Return (median, lowest, highest) over the rounds of the slope of log cost over log size."""
    figures = [c.of(n) for n in names if n in {f.name for f in c.figures}]
    rounds = min((len(f.windows) for f in figures), default=0)
    if len(figures) < len(sizes) or not rounds:
        return (float("nan"),) * 3
    slopes = [slope(sizes, [1 / f.windows[r].thrift for f in figures]) for r in range(rounds)]
    return float(np.median(slopes)), min(slopes), max(slopes)


def slope(sizes: tuple[int, ...], costs: list[float]) -> float:
    """Return the slope of the straight line that fits log cost over log size best."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    c = compare("Scaling, one worker", "instances/s", wanted(contenders(), a.only), **lengths(a, 0.5, 3))
    present = {f.name for f in c.figures if f.windows}
    goals, rows = [], []
    for name in ("chain", "tree", "graph"):
        found = exponent(c, [f"{name} of {s:,}" for s in SIZES], SIZES)
        goals.append(Goal(f"exponent of cost, {name} of 10 to 100,000", found, 1.05, most=True, unit=""))
        rows += [[f"{name} of {s:,}", "element", _each(c, f"{name} of {s:,}", s)] for s in SIZES if f"{name} of {s:,}" in present]
    goals.append(Goal("exponent of cost, 4 to 32 layers", exponent(c, [f"{n} layers" for n in LAYERS], LAYERS), 1.05, most=True, unit=""))
    rows += [[f"{n} layers", "layer", _each(c, f"{n} layers", n)] for n in LAYERS if f"{n} layers" in present]
    for h in HIDDENS:
        if f"{h} columns" in present:
            f = c.of(f"{h} columns")
            rows.append([f.name, "GFLOP/s", f"{number(f.thrift * f.facts['matrix_flops'] / 1e9)}"])
    table = Table("Cost of a part, by processor time", ("", "of a", "µs, or rate"), rows)
    publish("scaling", [c], goals, write=a.write, tables=[table])
    return [c]


def _each(c: Comparison, name: str, parts: int) -> str:
    return f"{1e6 / c.of(name).thrift / parts:.3g}"


if __name__ == "__main__":
    main(sys.argv[1:])
