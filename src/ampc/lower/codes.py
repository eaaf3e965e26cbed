"""The long forms of AMP250 to AMP280: parameters, sizes, shapes, indices, branches and loops.

The examples are lines of a program around which `program` puts the rest, so that each can be compiled.
"""

from __future__ import annotations

import dataclasses

from ampc.explanation import Explanation

HEAD = """model example(n = 8, kinds = 3):
    instance:
        axis node, edge, child[node]
        x: float[node, 4]
        z: float[4]
        y: float
        k: int < kinds
        hot: flag
        size: int[node]
        kind: int[edge] < kinds
        source, target: node[edge]
        left: node[node] or none
        kid: node[child]
"""


def program(lines: str) -> str:
    """Return a whole program with `lines` as its body."""
    if "loss " not in lines and "output " not in lines:
        lines += "\nloss squared(sum(z), y)"
    return HEAD + "".join(f"    {line}\n" if line else "\n" for line in lines.splitlines())


_TABLE: dict[str, Explanation] = {
    "AMP250": Explanation(
        "unknown model parameter",
        "`--set name=value` changes a parameter that the model declares in its first line. There is none of this name.",
        "ampc compile model.amp --set hiden=64",
        "ampc compile model.amp --set hidden=64",
    ),
    "AMP251": Explanation(
        "wrong kind of parameter",
        "A parameter keeps the kind of its default: an integer, a number, or true and false. An integer may stand for a number, "
        "not the other way round.",
        "ampc compile model.amp --set hidden=12.5",
        "ampc compile model.amp --set hidden=12",
    ),
    "AMP252": Explanation(
        "not a constant",
        "Sizes, bounds, options and settings are computed when the program is compiled, from numbers and the parameters of the model.",
        "a = Linear(4, 1)\nloop t in range(y) carry z:\n    z = relu(z)",
        "h = z\nloop t in range(n) carry h:\n    h = relu(h)",
    ),
    "AMP253": Explanation(
        "constant without a value",
        "Dividing by zero, results beyond 2**53 and results that are not finite are refused when the program is compiled.",
        "a = Linear(4, n // 0)",
        "a = Linear(4, n // 2)",
    ),
    "AMP254": Explanation(
        "size out of range",
        "A size is a positive integer; options have the ranges that `docs/language.md` gives. `/` makes a fraction, `//` an integer.",
        "a = Linear(4, n / 3)",
        "a = Linear(4, n // 3)",
    ),
    "AMP255": Explanation(
        "wrong layer declaration",
        "A layer is declared with its sizes in order, then options by name: `Linear(inputs, outputs, bias = false)`.",
        "a = Linear(4, 8, biass = false)",
        "a = Linear(4, 8, bias = false)",
    ),
    "AMP256": Explanation(
        "wrong setting of a layer",
        "In `train:`, `layer.name = value` sets the layer's own optimizer, learning rate and the like. The layer must exist, once for each name.",
        "a = Linear(4, 1)\ntrain:\n    b.learning_rate = 0.1",
        "a = Linear(4, 1)\ntrain:\n    a.learning_rate = 0.1",
    ),
    "AMP257": Explanation(
        "unknown name",
        "The name has no value at this place. A name that is assigned in a block ends with it, unless it is carried or merged.",
        "loop t in range(2):\n    h = relu(z)\nloss squared(sum(h), y)",
        "h = z\nloop t in range(2) carry h:\n    h = relu(h)\nloss squared(sum(h), y)",
    ),
    "AMP258": Explanation(
        "not an index",
        "Between the brackets stands an element: the variable of an `each`, `visit` or `loop` over an axis, or an index field at "
        "one. A slice takes columns.",
        "loss squared(z[0], y)",
        "loss squared(z[0:1], y)",
    ),
    "AMP259": Explanation(
        "element of another axis",
        "A field or value over an axis is indexed by elements of that axis. An index field leads from its own axis to the one "
        "that it is declared with.",
        "each e in edge:\n    a[target[e]] += x[e]\nloss squared(sum(sum(node, a)), y)",
        "each e in edge:\n    a[target[e]] += x[source[e]]\nloss squared(sum(sum(node, a)), y)",
    ),
    "AMP260": Explanation(
        "operands do not fit",
        "Both sides of an operation have as many columns, or one side has a single one; both lie over one axis, or one is a single row.",
        "a = Linear(4, 8)\nloss squared(sum(a(z) + z), y)",
        "a = Linear(4, 4)\nloss squared(sum(a(z) + z), y)",
    ),
    "AMP261": Explanation(
        "columns do not fit",
        "A slice lies within the columns of its value, counted from 0; a join takes floats over one axis (single rows are repeated beside it).",
        "loss squared(sum(z[2:6]), y)",
        "loss squared(sum(z[2:4]), y)",
    ),
    "AMP262": Explanation(
        "layer does not fit its value",
        "A Linear takes as many columns as it is declared for. An Embedding takes an int field whose bound is within its rows.",
        "a = Linear(8, 1)\nloss squared(a(z), y)",
        "a = Linear(4, 1)\nloss squared(a(z), y)",
    ),
    "AMP263": Explanation(
        "prediction and target do not fit",
        "A loss or metric compares a prediction with a target of the same columns and rows; for classes, an int below the number of columns.",
        "loss squared(z, y)",
        "loss squared(sum(z), y)",
    ),
    "AMP264": Explanation(
        "not a value",
        "Layers, functions, axes, index fields and loop variables can't be computed with; they are applied or used as an index.",
        "a = Linear(4, 1)\nloss squared(a * 2, y)",
        "a = Linear(4, 1)\nloss squared(a(z) * 2, y)",
    ),
    "AMP265": Explanation(
        "operator for constants only",
        "`//`, `%` and powers with a computed exponent work on constants only.",
        "loss squared(sum(z // 2), y)",
        "loss squared(sum(z / 2), y)",
    ),
    "AMP266": Explanation(
        "value of an element that isn't known yet",
        "In a visit, an element reads what others ended with: those that the index fields after `after` name. Its own carried "
        "names have no value before they are assigned.",
        "visit m in node after left[m] carry h:\n    h = x[m] + h\nloss squared(sum(sum(node, h)), y)",
        "visit m in node after left[m] carry h:\n    h = x[m] + h[left[m]]\nloss squared(sum(sum(node, h)), y)",
    ),
    "AMP267": Explanation(
        "too many rows for a block's result",
        "What a block assigns is collected as one row for each element. A value with rows of its own has to be reduced inside the block.",
        "each e in edge:\n    m = x * 2\nloss squared(sum(sum(edge, m)), y)",
        "each e in edge:\n    m = sum(node, x * 2)\nloss squared(sum(sum(edge, m)), y)",
    ),
    "AMP268": Explanation(
        "rows of a nested axis that can't be parted here",
        "A value with a row for each child is parted among the parents in an `each` or a `visit` over them; in a loop over the parents it is not.",
        "v = ones(child, 1)\ns = z[0:1]\nloop m in node carry s:\n    loop c in child carry s:\n        s = s + v[c]\nloss squared(s, y)",
        "v = ones(child, 1)\neach m in node:\n    s = z[0:1]\n    loop c in child carry s:\n        s = s + v[c]\nloss squared(sum(node, s), y)",
    ),
    "AMP269": Explanation(
        "not a value over the axis",
        "`sum(axis, value)`, `mean`, `max` and `softmax` over an axis need a value with a row for each of its elements.",
        "loss squared(sum(edge, sum(x)), y)",
        "loss squared(sum(node, sum(x)), y)",
    ),
    "AMP270": Explanation(
        "wrong call",
        "The number of operands, the options by name and the number of results are those of the declaration.",
        "loss squared(dot(z), y)",
        "loss squared(dot(z, z), y)",
    ),
    "AMP271": Explanation(
        "member of a family",
        "A family of layers is applied with the number of a member, known when compiling: inside `branch ... as k:`, `k` is one.",
        "w = Linear(4, 1) for i in kinds\nloss squared(w(z), y)",
        "w = Linear(4, 1) for i in kinds\nbranch k as i:\n    h = w[i](z)\nmerge h\nloss squared(h, y)",
    ),
    "AMP272": Explanation(
        "endless expansion",
        "Functions are expanded in place, so that none can call itself, directly or through others. Repetition is a `loop`, "
        "recursion over data a `visit`.",
        "def f(a):\n    return f(a)\nloss squared(sum(f(z)), y)",
        "def f(a):\n    return relu(a)\nloss squared(sum(f(z)), y)",
    ),
    "AMP273": Explanation(
        "two outputs of one name",
        "Each output has a name of its own: it is a column of the predictions.",
        "output p = sum(z)\noutput p = max(z)",
        "output p = sum(z)\noutput q = max(z)",
    ),
    "AMP274": Explanation(
        "sum into an axis at the wrong place",
        "`a[target[e]] += m` stands in the `each` (or `visit`) of `e`, or in a branch of it. `mean=` and `max=` take one statement for a name.",
        "each e in edge:\n    loop t in range(2):\n        a[target[e]] += x[source[e]]\nloss squared(sum(sum(node, a)), y)",
        "each e in edge:\n    a[target[e]] += 2 * x[source[e]]\nloss squared(sum(sum(node, a)), y)",
    ),
    "AMP275": Explanation(
        "what a branch looks at",
        "A branch looks at an int, a flag, an optional field (none or not), or one computed integer: a comparison or `argmax(x)`.",
        "branch sum(z):\n    true: h = z\n    else: h = -z\nmerge h\nloss squared(sum(h), y)",
        "branch sum(z) < 1:\n    true: h = z\n    else: h = -z\nmerge h\nloss squared(sum(h), y)",
    ),
    "AMP276": Explanation(
        "arms of a branch",
        "Each value has one arm, `else:` takes the rest. Where something is merged, all values need an arm.",
        "branch k:\n    0: h = z\n    1: h = -z\nmerge h\nloss squared(sum(h), y)",
        "branch k:\n    0: h = z\n    else: h = -z\nmerge h\nloss squared(sum(h), y)",
    ),
    "AMP277": Explanation(
        "merged name without a value",
        "Every arm has to assign a name that is merged, unless it has a value before the branch.",
        "branch hot:\n    true: h = z\n    false: g = z\nmerge h\nloss squared(sum(h), y)",
        "branch hot:\n    true: h = z\n    false: h = -z\nmerge h\nloss squared(sum(h), y)",
    ),
    "AMP278": Explanation(
        "arms of different shapes",
        "What the arms leave in a merged name has one shape.",
        "branch hot:\n    true: h = z\n    false: h = z[0:2]\nmerge h\nloss squared(sum(h), y)",
        "branch hot:\n    true: h = z\n    false: h = pad(z[0:2], 4)\nmerge h\nloss squared(sum(h), y)",
    ),
    "AMP279": Explanation(
        "carried value that changes its shape",
        "A carried name has the same shape before the loop and at the end of each turn; in a visit, whatever element it is read from.",
        "a = Linear(4, 8)\nh = z\nloop t in range(2) carry h:\n    h = a(h)\nloss squared(sum(h), y)",
        "a = Linear(4, 4)\nh = z\nloop t in range(2) carry h:\n    h = a(h)\nloss squared(sum(h), y)",
    ),
    "AMP280": Explanation(
        "shape that nothing tells",
        "The shape of what a visit carries follows from its body. Where the body only passes on what others ended with, nothing "
        "says how many columns that has.",
        "visit m in node after left[m] carry h:\n    h = relu(h[left[m]])\nloss squared(sum(sum(node, h)), y)",
        "visit m in node after left[m] carry h:\n    h = x[m] + relu(h[left[m]])\nloss squared(sum(sum(node, h)), y)",
    ),
}

CODES: dict[str, Explanation] = {
    code: x if x.wrong.startswith("ampc ") else dataclasses.replace(x, wrong=program(x.wrong), right=program(x.right)) for code, x in _TABLE.items()
}
