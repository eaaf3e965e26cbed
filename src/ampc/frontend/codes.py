"""The long forms of the front end's diagnostics (AMP1xx syntax, AMP2xx up to 249 names and structure), each with a wrong and a right program."""

from __future__ import annotations

from ampc.explanation import Explanation
from ampc.frontend.codes_syntax import FIELDS, GATHER, GRAPH, LOOP, SYNTAX, TREE, VISIT, flat, program

CODES: dict[str, Explanation] = {
    **SYNTAX,
    "AMP201": Explanation(
        "a name without a value",
        "A name is a parameter, field, layer or function of the model, or a value that was assigned before. What is assigned in "
        "an arm or a loop ends with it unless "
        "it is merged or carried; what is assigned in an `each` or a `visit` lives on as a value over its axis.",
        program(LOOP.replace("squared(h, y)", "squared(g, y)")),
        program(LOOP),
    ),
    "AMP202": Explanation(
        "a name is declared twice",
        "Parameters, axes, fields, layers and functions share one set of names.",
        program(LOOP, (*FIELDS, "x: float")),
        program(LOOP, (*FIELDS, "z: float")),
    ),
    "AMP203": Explanation(
        "a name hides another",
        "The variable of a block hides nothing, and a value never takes the name of a field, layer, axis, parameter or function. "
        "Inside a `def`, parameters and "
        "values may have any name.",
        program(LOOP.replace("loop t", "loop x").replace("x[t]", "x[x]")),
        program(LOOP),
    ),
    "AMP204": Explanation(
        "not an axis", "Axes are declared in the `instance:` block: `axis token`.", program(LOOP.replace("in token", "in tokens")), program(LOOP)
    ),
    "AMP205": Explanation(
        "an unknown type",
        "A field is an `int`, a `float`, a `flag`, or has an axis as its type: then it holds positions on that axis.",
        program(LOOP, (*FIELDS, "ok: bool")),
        program(LOOP, (*FIELDS, "ok: flag")),
    ),
    "AMP206": Explanation(
        "a size that the type doesn't have",
        "Floats have columns (`float[token, 3]`), ints a bound (`int[token] < 10`).",
        program(LOOP, (*FIELDS, "k: int[token, 3]")),
        program(LOOP, (*FIELDS, "k: int[token]")),
    ),
    "AMP207": Explanation(
        "axes inside each other",
        "`axis char[word]` says that each word has characters of its own; such a chain begins at an axis of the instance.",
        program(LOOP, (*FIELDS, "axis a[b]", "axis b[a]")),
        program(LOOP, (*FIELDS, "axis b", "axis a[b]")),
    ),
    "AMP208": Explanation(
        "an unknown layer",
        "Layers are `Linear`, `Embedding` and `LayerNorm`; cells such as a GRU are written with `def`.",
        program(LOOP.replace("Linear", "Liner")),
        program(LOOP),
    ),
    "AMP209": Explanation(
        "a layer's sizes are missing",
        "`Linear(inputs, outputs)`, `Embedding(rows, columns)`, `LayerNorm(columns)`.",
        program(LOOP.replace("Linear(1, 1)", "Linear(1)")),
        program(LOOP),
    ),
    "AMP210": Explanation(
        "an unknown option",
        "The message lists the options.",
        program(LOOP.replace("Linear(1, 1)", "Linear(1, 1, biass = false)")),
        program(LOOP.replace("Linear(1, 1)", "Linear(1, 1, bias = false)")),
    ),
    "AMP211": Explanation(
        "an option of the wrong kind",
        "`bias` is `true` or `false`, `init` one of a few words, the rest are numbers.",
        program(LOOP.replace("Linear(1, 1)", "Linear(1, 1, init = zero)")),
        program(LOOP.replace("Linear(1, 1)", "Linear(1, 1, init = zeros)")),
    ),
    "AMP212": Explanation(
        "an unknown function",
        "`docs/language.md` lists the functions; `def` makes new ones.",
        program(LOOP.replace("h + w(x[t])", "rellu(h + w(x[t]))")),
        program(LOOP.replace("h + w(x[t])", "relu(h + w(x[t]))")),
    ),
    "AMP213": Explanation(
        "the wrong number of operands",
        "The message says how the function is written. A layer takes one value; join columns with `[a, b]`.",
        program(LOOP.replace("h + w(x[t])", "w(h, x[t])")),
        program(LOOP.replace("Linear(1, 1)", "Linear(2, 1)").replace("h + w(x[t])", "w([h, x[t]])")),
    ),
    "AMP214": Explanation("an unknown loss or metric", "The message lists them.", program(LOOP.replace("squared", "sqared")), program(LOOP)),
    "AMP215": Explanation(
        "not a value",
        "Axes, layers, functions and the variables of blocks can't be computed with: axes are summed over, layers applied, variables index.",
        program(LOOP.replace("w(x[t])", "w(t)")),
        program(LOOP),
    ),
    "AMP216": Explanation(
        "not an index, or nothing to index",
        "`h[i]` takes a row of a field or value over an axis. An index is the variable of an `each`, a `visit` or a `loop` over "
        "an axis, or a field of elements "
        "(`source: node[edge]`) at one.",
        program(LOOP.replace("x[t]", "x[0]")),
        program(LOOP),
    ),
    "AMP217": Explanation(
        "an element of the wrong axis",
        "A field over `node` is indexed by an element of `node`, such as `source[e]` where `source: node[edge]`.",
        program(GATHER.replace("x[source[e]]", "x[e]"), GRAPH),
        program(GATHER, GRAPH),
    ),
    "AMP218": Explanation(
        "nothing to carry",
        "What a loop carries has a value before it; a visit starts from its first elements and needs none.",
        program(LOOP.replace("h = zeros(1)\n", "")),
        program(LOOP),
    ),
    "AMP219": Explanation(
        "carried but never assigned",
        "Each turn (each element of a visit) gives a new value to what is carried.",
        program(LOOP.replace("    h = h", "    g = h")),
        program(LOOP),
    ),
    "AMP220": Explanation(
        "a value that isn't carried",
        "Without `carry`, each turn of a loop sees the value from before the loop. The elements of an `each` are independent of one another.",
        program(LOOP.replace(" carry h", "")),
        program(LOOP),
    ),
    "AMP221": Explanation(
        "an older value would be read",
        "The name was assigned in a loop or an arm that is over, and the newer value ended with it. Merge it, carry it, or use two names.",
        flat(
            "w = Linear(3, 1)\nh = w(x)\nbranch kind:\n    0:\n        h = relu(h)\n        loss squared(h, 1)\n"
            "    else: loss squared(h, 2)\noutput h",
        ),
        flat("w = Linear(3, 1)\nh = w(x)\nbranch kind:\n    0: h = relu(h)\n    else: h = tanh(h)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP222": Explanation(
        "merged but not assigned",
        "Each arm assigns what is merged, unless it has a value before the branch.",
        flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    else: g = w(x)\nmerge h\nloss squared(h, 1)"),
        flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP223": Explanation(
        "arms that don't fit",
        "Each value has one arm; where something is merged, every value has one. `else:` stands for all that aren't named.",
        flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\nmerge h\nloss squared(h, 1)"),
        flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    1: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP224": Explanation(
        "nothing to choose by",
        "A branch chooses by an int or flag field, by whether an optional field is none, or by a computed integer (`argmax`, a comparison).",
        program(LOOP.replace("loss squared(h, y)", "branch y:\n    else: loss squared(h, y)")),
        program(
            LOOP.replace("loss squared(h, y)", "branch y:\n    none: output h\n    else: loss squared(h, y)"), (*FIELDS[:2], "y: float or none")
        ),
    ),
    "AMP225": Explanation(
        "`none` where there is none",
        "Only a field declared with `or none` can be none.",
        flat("w = Linear(3, 1)\nbranch kind:\n    none: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
        flat("w = Linear(3, 1)\nbranch y:\n    none: output a = w(x)\n    else: loss squared(w(x), y)"),
    ),
    "AMP226": Explanation(
        "`after` doesn't order the elements",
        "`after` names fields that point into the visited axis: an element fires once those it names have fired.",
        program(VISIT.replace("after left[n], right[n]", "after left"), TREE),
        program(VISIT, TREE),
    ),
    "AMP227": Explanation(
        "gathering outside of an `each`",
        "`a[target[e]] += m` gathers from all elements of the `each` it stands in.",
        program("w = Linear(1, 1)\na[target] += w(x)\nloss squared(sum(node, a), y)", GRAPH),
        program(GATHER, GRAPH),
    ),
    "AMP228": Explanation(
        "a name that has a value already",
        "What is gathered starts from zero, what is visited from its first elements: choose a name of its own.",
        program("a = x\n" + GATHER, GRAPH),
        program(GATHER, GRAPH),
    ),
    "AMP229": Explanation(
        "a loop without a bound",
        "The number of turns is a positive integer, and a `while` loop carries what its condition looks at.",
        program(LOOP.replace("in token", "in range(2.5)").replace("x[t]", "h")),
        program(LOOP.replace("in token", "in range(2)").replace("x[t]", "h")),
    ),
    "AMP230": Explanation(
        "functions that expand without end",
        "A `def` is expanded where it is called, so that it can't call itself; what repeats is a loop.",
        program("def f(a):\n    return f(a) + 1\n" + LOOP.replace("w(x[t])", "f(w(x[t]))")),
        program("def f(a):\n    return a + 1\n" + LOOP.replace("w(x[t])", "f(w(x[t]))")),
    ),
    "AMP231": Explanation(
        "the wrong number of results",
        "A function that returns two values is assigned to two names.",
        program("def f(a):\n    return a, a\n" + LOOP.replace("h = h + w(x[t])", "h = f(w(x[t]))")),
        program("def f(a):\n    return a, a\n" + LOOP.replace("h = h + w(x[t])", "h, g = f(w(x[t]))")),
    ),
    "AMP232": Explanation(
        "an unknown setting",
        "The `train:` block holds defaults of a run; `layer.name = value` sets one for a layer.",
        program(LOOP + "\ntrain:\n    learning_rat = 0.1"),
        program(LOOP + "\ntrain:\n    learning_rate = 0.1"),
    ),
    "AMP233": Explanation(
        "a setting of the wrong kind",
        "The message says what it accepts.",
        program(LOOP + "\ntrain:\n    optimizer = adamm"),
        program(LOOP + "\ntrain:\n    optimizer = adam"),
    ),
    "AMP234": Explanation(
        "a setting twice",
        "Each setting is given once.",
        program(LOOP + "\ntrain:\n    seed = 1\n    seed = 2"),
        program(LOOP + "\ntrain:\n    seed = 1"),
    ),
    "AMP235": Explanation(
        "a model that gives nothing",
        "A model has a loss to be trained by, or an output to predict.",
        program(LOOP.replace("\nloss squared(h, y)", "")),
        program(LOOP),
    ),
    "AMP236": Explanation(
        "a name twice",
        "Each output has a name of its own. Metrics of one name are counted together, so they have to be of one kind.",
        program(LOOP + "\noutput h\noutput h"),
        program(LOOP + "\noutput h\noutput g = 2 * h"),
    ),
    "AMP237": Explanation(
        "a member of a family",
        "`message = Linear(8, 8) for kind in kinds` is a family of layers; `branch kind[e] as k:` picks one: `message[k](h)`.",
        program("w = Linear(1, 1) for kind in 2\neach e in edge:\n    a[target[e]] += w(x[source[e]])\nloss squared(sum(node, a), y)", GRAPH),
        program(
            "w = Linear(1, 1) for k in 2\neach e in edge:\n    branch kind[e] as k:\n"
            "        m = w[k](x[source[e]])\n    merge m\n    a[target[e]] += m\nloss squared(sum(node, a), y)",
            GRAPH,
        ),
    ),
    "AMP238": Explanation(
        "a value that may be none",
        "An optional float is read in the `else` arm of a branch on it. A target of a loss or metric may be none: it then adds nothing.",
        flat("w = Linear(1, 1)\nloss squared(w(y), 1)"),
        flat("w = Linear(1, 1)\nbranch y:\n    none: h = zeros(1)\n    else: h = w(y)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP239": Explanation(
        "a layer inside an expression or block",
        "A layer owns parameters and is declared once, directly in the model; it is applied as often as needed.",
        program("h = zeros(1)\nloop t in token carry h:\n    h = h + Linear(1, 1)(x[t])\nloss squared(h, y)").replace(
            "Linear(1, 1)(x[t])", "Linear(1, 1)"
        ),
        program(LOOP),
    ),
    "AMP240": Explanation(
        "a parameter without a default",
        "Each parameter of a model has a default, which `--set name=value` changes.",
        program(LOOP, head="model m(hidden):"),
        program(LOOP, head="model m(hidden = 8):"),
    ),
    "AMP241": Explanation(
        "not known when compiling",
        "Sizes, bounds and numbers of turns are made of numbers and parameters of the model.",
        program(LOOP.replace("Linear(1, 1)", "Linear(1, y)")),
        program(LOOP.replace("Linear(1, 1)", "Linear(1, 1 + 0)")),
    ),
    "AMP242": Explanation(
        "a field that is no number",
        "Ints and flags are turned into numbers by `number`, `one_hot` or an `Embedding`; fields of elements are indices.",
        flat("w = Linear(1, 1)\nloss squared(w(kind), 1)"),
        flat("w = Linear(1, 1)\nloss squared(w(number(kind)), 1)"),
    ),
    "AMP290": Explanation("a layer that nothing uses", "A warning: the layer has parameters that are never trained."),
    "AMP291": Explanation("a field that nothing reads", "A warning: the field has to be in the data all the same."),
}
