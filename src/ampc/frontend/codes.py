"""The long forms of the front end's diagnostics (AMP1xx syntax, AMP2xx up to 249 names and structure), each with a wrong and a right program."""

from __future__ import annotations

from ampc.explanation import Explanation

FIELDS = ("axis token", "x: float[token]", "y: float")
GRAPH = ("axis node, edge", "x: float[node]", "source, target: node[edge]", "kind: int[edge] < 2", "y: float")
TREE = ("axis node", "v: float[node]", "left, right: node[node] or none", "t: float[node]")


def program(body: str, fields: tuple[str, ...] = FIELDS, head: str = "model m(hidden = 8):") -> str:
    """Return a small program: a head, an instance with `fields`, and the lines of `body` indented by one step."""
    lines = [head, "    instance:", *(f"        {f}" for f in fields)]
    return "\n".join([*lines, *(f"    {line}" if line else "" for line in body.split("\n"))])


_LOOP = "w = Linear(1, 1)\nh = zeros(1)\nloop t in token carry h:\n    h = h + w(x[t])\nloss squared(h, y)"
_GATHER = "w = Linear(1, 1)\neach e in edge:\n    a[target[e]] += w(x[source[e]])\nloss squared(sum(node, a), y)"
_TREE = (
    "w = Linear(1, 1)\nvisit n in node after left[n], right[n] carry h:\n    branch left[n]:\n        none: h = w(v[n])\n"
    "        else: h = h[left[n]] + h[right[n]]\n    merge h\n    loss squared(h, t[n])"
)
_FLAT = ("x: float[3]", "kind: int < 2", "label: int < 4", "y: float or none")


def _flat(body: str) -> str:
    return program(body, _FLAT)


_MINIMAL = "w = Linear(3, 1)\nloss squared(w(x), 1)"

CODES: dict[str, Explanation] = {
    "AMP101": Explanation(
        "a character without a meaning",
        "Programs are made of names (`a-z`, `A-Z`, `0-9`, `_`), numbers, the operators `+ - * / // % ** < <= > >= == !=`, "
        "brackets, `,` `:` `.` `=` and "
        "comments from `#` to the end of the line.",
        _flat("w = Linear(3, 1);\nloss squared(w(x), 1)"),
        _flat(_MINIMAL),
    ),
    "AMP102": Explanation(
        "a text without its closing quote",
        "A text stands between two `\"` or two `'` on one line. Only settings and options of layers take texts.",
        _flat(_MINIMAL + '\ntrain:\n    until = "loss < 0.1'),
        _flat(_MINIMAL + '\ntrain:\n    until = "loss < 0.1"'),
    ),
    "AMP103": Explanation(
        "tabs and spaces mixed",
        "Blocks are told by indentation. A tab has no fixed width, so that a file is indented either with spaces or with tabs. "
        "Four spaces are usual.",
        program("w = Linear(1, 1)\nh = zeros(1)\nloop t in token carry h:\n\t\th = h + w(x[t])\nloss squared(h, y)"),
        program(_LOOP),
    ),
    "AMP104": Explanation(
        "a bracket without its partner",
        "Each `(` needs its `)` and each `[` its `]`. Inside brackets a line may go on to the next one, so that a forgotten "
        "bracket is noticed where a new "
        "statement begins; the mark is at the bracket that is open.",
        _flat("w = Linear(3, 1\nloss squared(w(x), 1)"),
        _flat(_MINIMAL),
    ),
    "AMP105": Explanation(
        "an empty program",
        "The file holds nothing but comments and empty lines. A program begins with `model name(hidden = 128):`.",
        "# nothing yet",
        _flat(_MINIMAL),
    ),
    "AMP106": Explanation(
        "not a number",
        "Numbers are written in decimal: `128`, `1_000`, `0.5`, `1e-3`.",
        _flat("w = Linear(3, 1)\nloss squared(w(x), 1.2.3)"),
        _flat(_MINIMAL),
    ),
    "AMP110": Explanation(
        "something else was expected",
        "No rule of the language goes on with what stands here. The message lists what could; `docs/language.md` shows every "
        "construct with an example.",
        _flat("w = Linear(3, 1)\nloss squared(w(x) 1)"),
        _flat(_MINIMAL),
    ),
    "AMP111": Explanation(
        "a colon is missing",
        "The first line of a block ends with `:`. The lines that belong to it follow, indented.",
        program(_LOOP.replace("carry h:", "carry h")),
        program(_LOOP),
    ),
    "AMP112": Explanation(
        "unexpected indentation",
        "A line may be indented deeper than the one above only where that one opens a block with `:`, or inside brackets.",
        _flat("w = Linear(3, 1)\n    h = w(x)\nloss squared(h, 1)"),
        _flat("w = Linear(3, 1)\nh = w(x)\nloss squared(h, 1)"),
    ),
    "AMP113": Explanation(
        "indentation that fits no block",
        "A line that ends a block goes back to the indentation of one of the blocks around it.",
        program(_LOOP.replace("    h = h", "        h = h").replace("\nloss", "\n    loss")),
        program(_LOOP),
    ),
    "AMP114": Explanation(
        "an empty block",
        "A block holds at least one line. Leave the whole block out if there is nothing to do.",
        program(_LOOP.replace("    h = h + w(x[t])\n", "")),
        program(_LOOP),
    ),
    "AMP115": Explanation(
        "a word of another language",
        "Control flow is `loop`, `each`, `visit` and `branch … merge`; there is no `if`, `for`, `while` or `import`.",
        program("w = Linear(1, 1)\nh = zeros(1)\nfor t in token:\n    h = h + w(x[t])\nloss squared(h, y)"),
        program(_LOOP),
    ),
    "AMP116": Explanation(
        "a misspelt word at the start of a line",
        "A line that isn't an assignment starts with a word of the language.",
        program(_LOOP.replace("loop t", "lop t")),
        program(_LOOP),
    ),
    "AMP117": Explanation(
        "a line in the wrong place",
        "Axes and fields stand in `instance:`, settings in `train:`, arms in a `branch`, `merge` below it, functions and both "
        "blocks directly in the model.",
        _flat("w = Linear(3, 1)\nz: float\nloss squared(w(x), 1)"),
        program(_MINIMAL, (*_FLAT, "z: float")),
    ),
    "AMP118": Explanation(
        "the wrong sign for giving or comparing a value",
        "`=` gives a value, `==` compares, `+=`, `mean=` and `max=` gather into an element of another axis.",
        _flat("w = Linear(3, 1)\nh == w(x)\nloss squared(h, 1)"),
        _flat("w = Linear(3, 1)\nh = w(x)\nloss squared(h, 1)"),
    ),
    "AMP119": Explanation(
        "a word of the language as a name",
        "Words such as `loop`, `merge`, `axis`, `loss`, `output` and `train` can't name a field, layer or value.",
        _flat("output = Linear(3, 1)\nloss squared(output(x), 1)"),
        _flat("outputs = Linear(3, 1)\nloss squared(outputs(x), 1)"),
    ),
    "AMP120": Explanation(
        "no `instance:` block",
        "A model says what one instance of its data consists of: its axes, and the fields over them.",
        "model m():\n    w = Linear(1, 1)\n    loss squared(w(1), 2)",
        _flat(_MINIMAL),
    ),
    "AMP121": Explanation(
        "a block twice",
        "There is one `instance:` and one `train:` block.",
        _flat(_MINIMAL + "\ntrain:\n    epochs = 3\ntrain:\n    seed = 1"),
        _flat(_MINIMAL + "\ntrain:\n    epochs = 3\n    seed = 1"),
    ),
    "AMP122": Explanation(
        "too much between the brackets of a field",
        "A field lies over no axis or one, and a float has one number of columns: `float[3]`, `float[atom]`, `float[atom, 3]`.",
        program(_MINIMAL, ("axis atom", "x: float[3]", "z: float[atom, 2, 2]")),
        program(_MINIMAL, ("axis atom", "x: float[3]", "z: float[atom, 4]")),
    ),
    "AMP123": Explanation(
        "a layer is declared wrongly",
        "A layer is declared directly in the model, one on each line; `for k in n` makes a family of n layers.",
        _flat("a, b = Linear(3, 1)\nloss squared(a(x) + b(x), 1)"),
        _flat("a = Linear(3, 1)\nb = Linear(3, 1)\nloss squared(a(x) + b(x), 1)"),
    ),
    "AMP124": Explanation(
        "`return` is missing or misplaced",
        "A `def` ends with `return`, and nothing else does. It is expanded where it is called.",
        _flat("def twice(a):\n    b = a + a\nw = Linear(3, 1)\nloss squared(twice(w(x)), 1)"),
        _flat("def twice(a):\n    return a + a\nw = Linear(3, 1)\nloss squared(twice(w(x)), 1)"),
    ),
    "AMP125": Explanation(
        "names and values don't pair",
        "As many values as names, or one call of a function that returns as many.",
        _flat("w = Linear(3, 1)\na, b, c = w(x), 1\nloss squared(a + b + c, 1)"),
        _flat("w = Linear(3, 1)\na, b = w(x), 1\nloss squared(a + b, 1)"),
    ),
    "AMP126": Explanation(
        "an unknown way to gather",
        "Values are gathered by `+=` (sum), `mean=` or `max=`.",
        program(_GATHER.replace("+=", "min="), GRAPH),
        program(_GATHER, GRAPH),
    ),
    "AMP127": Explanation(
        "no call after `loss` or `metric`",
        "A loss is one of the functions that the language knows as such, applied to a prediction and a target.",
        _flat("w = Linear(3, 1)\nloss (w(x) - 1) ** 2"),
        _flat(_MINIMAL),
    ),
    "AMP128": Explanation(
        "a loop over something else than an axis",
        "A loop goes over an axis, `reversed(axis)` or `range(count)`; `loop while condition at most count` ends by itself.",
        program(_LOOP.replace("in token", "in enumerate(token)")),
        program(_LOOP),
    ),
    "AMP129": Explanation(
        "an arm that can't be",
        "Arms are integers (`0:`, `1, 2:`), `true:`, `false:`, `none:` or `else:`.",
        _flat("w = Linear(3, 1)\nbranch kind:\n    0.5: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
        _flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP130": Explanation(
        "an expression of a form that isn't supported",
        "Only names are indexed and called; comparisons aren't chained. Give the inner value a name first.",
        _flat("w = Linear(3, 1)\nloss squared(w(x)[0], 1)"),
        _flat("w = Linear(3, 1)\nh = w(x)\nloss squared(h[0:1], 1)"),
    ),
    "AMP131": Explanation(
        "options out of order",
        "Operands come first, then options as `name = value`, each once.",
        _flat("w = Linear(3, bias = false, 1)\nloss squared(w(x), 1)"),
        _flat("w = Linear(3, 1, bias = false)\nloss squared(w(x), 1)"),
    ),
    "AMP181": Explanation("the program is too large", "A program has at most 1,000,000 bytes. Data belongs into data files."),
    "AMP182": Explanation("the program has too many words", "A program has at most 100,000 words and signs."),
    "AMP183": Explanation(
        "nested too deep",
        "Blocks and brackets are nested at most 100 deep, and an expression has at most 100 operators in a row. Split it into "
        "named values or a `def`.",
        _flat("w = Linear(3, 1)\nloss squared(w(x), " + "(" * 120 + "1" + ")" * 120 + ")"),
        _flat(_MINIMAL),
    ),
    "AMP184": Explanation(
        "an integer is too large",
        "Integers are at most 2^53, so that they are exact everywhere.",
        _flat("w = Linear(3, 99999999999999999999)\nloss squared(w(x), 1)"),
        _flat(_MINIMAL),
    ),
    "AMP185": Explanation(
        "a number is too large", "Numbers are at most 1.8e308.", _flat("w = Linear(3, 1)\nloss squared(w(x), 1e999)"), _flat(_MINIMAL)
    ),
    "AMP186": Explanation(
        "a name is too long",
        "Names have at most 64 characters.",
        _flat(f"{'w' * 70} = Linear(3, 1)\nloss squared({'w' * 70}(x), 1)"),
        _flat(_MINIMAL),
    ),
    "AMP201": Explanation(
        "a name without a value",
        "A name is a parameter, field, layer or function of the model, or a value that was assigned before. What is assigned in "
        "an arm or a loop ends with it unless "
        "it is merged or carried; what is assigned in an `each` or a `visit` lives on as a value over its axis.",
        program(_LOOP.replace("squared(h, y)", "squared(g, y)")),
        program(_LOOP),
    ),
    "AMP202": Explanation(
        "a name is declared twice",
        "Parameters, axes, fields, layers and functions share one set of names.",
        program(_LOOP, (*FIELDS, "x: float")),
        program(_LOOP, (*FIELDS, "z: float")),
    ),
    "AMP203": Explanation(
        "a name hides another",
        "The variable of a block hides nothing, and a value never takes the name of a field, layer, axis, parameter or function. "
        "Inside a `def`, parameters and "
        "values may have any name.",
        program(_LOOP.replace("loop t", "loop x").replace("x[t]", "x[x]")),
        program(_LOOP),
    ),
    "AMP204": Explanation(
        "not an axis", "Axes are declared in the `instance:` block: `axis token`.", program(_LOOP.replace("in token", "in tokens")), program(_LOOP)
    ),
    "AMP205": Explanation(
        "an unknown type",
        "A field is an `int`, a `float`, a `flag`, or has an axis as its type: then it holds positions on that axis.",
        program(_LOOP, (*FIELDS, "ok: bool")),
        program(_LOOP, (*FIELDS, "ok: flag")),
    ),
    "AMP206": Explanation(
        "a size that the type doesn't have",
        "Floats have columns (`float[token, 3]`), ints a bound (`int[token] < 10`).",
        program(_LOOP, (*FIELDS, "k: int[token, 3]")),
        program(_LOOP, (*FIELDS, "k: int[token]")),
    ),
    "AMP207": Explanation(
        "axes inside each other",
        "`axis char[word]` says that each word has characters of its own; such a chain begins at an axis of the instance.",
        program(_LOOP, (*FIELDS, "axis a[b]", "axis b[a]")),
        program(_LOOP, (*FIELDS, "axis b", "axis a[b]")),
    ),
    "AMP208": Explanation(
        "an unknown layer",
        "Layers are `Linear`, `Embedding` and `LayerNorm`; cells such as a GRU are written with `def`.",
        program(_LOOP.replace("Linear", "Liner")),
        program(_LOOP),
    ),
    "AMP209": Explanation(
        "a layer's sizes are missing",
        "`Linear(inputs, outputs)`, `Embedding(rows, columns)`, `LayerNorm(columns)`.",
        program(_LOOP.replace("Linear(1, 1)", "Linear(1)")),
        program(_LOOP),
    ),
    "AMP210": Explanation(
        "an unknown option",
        "The message lists the options.",
        program(_LOOP.replace("Linear(1, 1)", "Linear(1, 1, biass = false)")),
        program(_LOOP.replace("Linear(1, 1)", "Linear(1, 1, bias = false)")),
    ),
    "AMP211": Explanation(
        "an option of the wrong kind",
        "`bias` is `true` or `false`, `init` one of a few words, the rest are numbers.",
        program(_LOOP.replace("Linear(1, 1)", "Linear(1, 1, init = zero)")),
        program(_LOOP.replace("Linear(1, 1)", "Linear(1, 1, init = zeros)")),
    ),
    "AMP212": Explanation(
        "an unknown function",
        "`docs/language.md` lists the functions; `def` makes new ones.",
        program(_LOOP.replace("h + w(x[t])", "rellu(h + w(x[t]))")),
        program(_LOOP.replace("h + w(x[t])", "relu(h + w(x[t]))")),
    ),
    "AMP213": Explanation(
        "the wrong number of operands",
        "The message says how the function is written. A layer takes one value; join columns with `[a, b]`.",
        program(_LOOP.replace("h + w(x[t])", "w(h, x[t])")),
        program(_LOOP.replace("Linear(1, 1)", "Linear(2, 1)").replace("h + w(x[t])", "w([h, x[t]])")),
    ),
    "AMP214": Explanation("an unknown loss or metric", "The message lists them.", program(_LOOP.replace("squared", "sqared")), program(_LOOP)),
    "AMP215": Explanation(
        "not a value",
        "Axes, layers, functions and the variables of blocks can't be computed with: axes are summed over, layers applied, variables index.",
        program(_LOOP.replace("w(x[t])", "w(t)")),
        program(_LOOP),
    ),
    "AMP216": Explanation(
        "not an index, or nothing to index",
        "`h[i]` takes a row of a field or value over an axis. An index is the variable of an `each`, a `visit` or a `loop` over "
        "an axis, or a field of elements "
        "(`source: node[edge]`) at one.",
        program(_LOOP.replace("x[t]", "x[0]")),
        program(_LOOP),
    ),
    "AMP217": Explanation(
        "an element of the wrong axis",
        "A field over `node` is indexed by an element of `node`, such as `source[e]` where `source: node[edge]`.",
        program(_GATHER.replace("x[source[e]]", "x[e]"), GRAPH),
        program(_GATHER, GRAPH),
    ),
    "AMP218": Explanation(
        "nothing to carry",
        "What a loop carries has a value before it; a visit starts from its first elements and needs none.",
        program(_LOOP.replace("h = zeros(1)\n", "")),
        program(_LOOP),
    ),
    "AMP219": Explanation(
        "carried but never assigned",
        "Each turn (each element of a visit) gives a new value to what is carried.",
        program(_LOOP.replace("    h = h", "    g = h")),
        program(_LOOP),
    ),
    "AMP220": Explanation(
        "a value that isn't carried",
        "Without `carry`, each turn of a loop sees the value from before the loop. The elements of an `each` are independent of one another.",
        program(_LOOP.replace(" carry h", "")),
        program(_LOOP),
    ),
    "AMP221": Explanation(
        "an older value would be read",
        "The name was assigned in a loop or an arm that is over, and the newer value ended with it. Merge it, carry it, or use two names.",
        _flat(
            "w = Linear(3, 1)\nh = w(x)\nbranch kind:\n    0:\n        h = relu(h)\n        loss squared(h, 1)\n"
            "    else: loss squared(h, 2)\noutput h",
        ),
        _flat("w = Linear(3, 1)\nh = w(x)\nbranch kind:\n    0: h = relu(h)\n    else: h = tanh(h)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP222": Explanation(
        "merged but not assigned",
        "Each arm assigns what is merged, unless it has a value before the branch.",
        _flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    else: g = w(x)\nmerge h\nloss squared(h, 1)"),
        _flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP223": Explanation(
        "arms that don't fit",
        "Each value has one arm; where something is merged, every value has one. `else:` stands for all that aren't named.",
        _flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\nmerge h\nloss squared(h, 1)"),
        _flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    1: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP224": Explanation(
        "nothing to choose by",
        "A branch chooses by an int or flag field, by whether an optional field is none, or by a computed integer (`argmax`, a comparison).",
        program(_LOOP.replace("loss squared(h, y)", "branch y:\n    else: loss squared(h, y)")),
        program(
            _LOOP.replace("loss squared(h, y)", "branch y:\n    none: output h\n    else: loss squared(h, y)"), (*FIELDS[:2], "y: float or none")
        ),
    ),
    "AMP225": Explanation(
        "`none` where there is none",
        "Only a field declared with `or none` can be none.",
        _flat("w = Linear(3, 1)\nbranch kind:\n    none: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
        _flat("w = Linear(3, 1)\nbranch y:\n    none: output a = w(x)\n    else: loss squared(w(x), y)"),
    ),
    "AMP226": Explanation(
        "`after` doesn't order the elements",
        "`after` names fields that point into the visited axis: an element fires once those it names have fired.",
        program(_TREE.replace("after left[n], right[n]", "after left"), TREE),
        program(_TREE, TREE),
    ),
    "AMP227": Explanation(
        "gathering outside of an `each`",
        "`a[target[e]] += m` gathers from all elements of the `each` it stands in.",
        program("w = Linear(1, 1)\na[target] += w(x)\nloss squared(sum(node, a), y)", GRAPH),
        program(_GATHER, GRAPH),
    ),
    "AMP228": Explanation(
        "a name that has a value already",
        "What is gathered starts from zero, what is visited from its first elements: choose a name of its own.",
        program("a = x\n" + _GATHER, GRAPH),
        program(_GATHER, GRAPH),
    ),
    "AMP229": Explanation(
        "a loop without a bound",
        "The number of turns is a positive integer, and a `while` loop carries what its condition looks at.",
        program(_LOOP.replace("in token", "in range(2.5)").replace("x[t]", "h")),
        program(_LOOP.replace("in token", "in range(2)").replace("x[t]", "h")),
    ),
    "AMP230": Explanation(
        "functions that expand without end",
        "A `def` is expanded where it is called, so that it can't call itself; what repeats is a loop.",
        program("def f(a):\n    return f(a) + 1\n" + _LOOP.replace("w(x[t])", "f(w(x[t]))")),
        program("def f(a):\n    return a + 1\n" + _LOOP.replace("w(x[t])", "f(w(x[t]))")),
    ),
    "AMP231": Explanation(
        "the wrong number of results",
        "A function that returns two values is assigned to two names.",
        program("def f(a):\n    return a, a\n" + _LOOP.replace("h = h + w(x[t])", "h = f(w(x[t]))")),
        program("def f(a):\n    return a, a\n" + _LOOP.replace("h = h + w(x[t])", "h, g = f(w(x[t]))")),
    ),
    "AMP232": Explanation(
        "an unknown setting",
        "The `train:` block holds defaults of a run; `layer.name = value` sets one for a layer.",
        program(_LOOP + "\ntrain:\n    learning_rat = 0.1"),
        program(_LOOP + "\ntrain:\n    learning_rate = 0.1"),
    ),
    "AMP233": Explanation(
        "a setting of the wrong kind",
        "The message says what it accepts.",
        program(_LOOP + "\ntrain:\n    optimizer = adamm"),
        program(_LOOP + "\ntrain:\n    optimizer = adam"),
    ),
    "AMP234": Explanation(
        "a setting twice",
        "Each setting is given once.",
        program(_LOOP + "\ntrain:\n    seed = 1\n    seed = 2"),
        program(_LOOP + "\ntrain:\n    seed = 1"),
    ),
    "AMP235": Explanation(
        "a model that gives nothing",
        "A model has a loss to be trained by, or an output to predict.",
        program(_LOOP.replace("\nloss squared(h, y)", "")),
        program(_LOOP),
    ),
    "AMP236": Explanation(
        "a name twice",
        "Each output has a name of its own. Metrics of one name are counted together, so they have to be of one kind.",
        program(_LOOP + "\noutput h\noutput h"),
        program(_LOOP + "\noutput h\noutput g = 2 * h"),
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
        _flat("w = Linear(1, 1)\nloss squared(w(y), 1)"),
        _flat("w = Linear(1, 1)\nbranch y:\n    none: h = zeros(1)\n    else: h = w(y)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP239": Explanation(
        "a layer inside an expression or block",
        "A layer owns parameters and is declared once, directly in the model; it is applied as often as needed.",
        program("h = zeros(1)\nloop t in token carry h:\n    h = h + Linear(1, 1)(x[t])\nloss squared(h, y)").replace(
            "Linear(1, 1)(x[t])", "Linear(1, 1)"
        ),
        program(_LOOP),
    ),
    "AMP240": Explanation(
        "a parameter without a default",
        "Each parameter of a model has a default, which `--set name=value` changes.",
        program(_LOOP, head="model m(hidden):"),
        program(_LOOP, head="model m(hidden = 8):"),
    ),
    "AMP241": Explanation(
        "not known when compiling",
        "Sizes, bounds and numbers of turns are made of numbers and parameters of the model.",
        program(_LOOP.replace("Linear(1, 1)", "Linear(1, y)")),
        program(_LOOP.replace("Linear(1, 1)", "Linear(1, 1 + 0)")),
    ),
    "AMP242": Explanation(
        "a field that is no number",
        "Ints and flags are turned into numbers by `number`, `one_hot` or an `Embedding`; fields of elements are indices.",
        _flat("w = Linear(1, 1)\nloss squared(w(kind), 1)"),
        _flat("w = Linear(1, 1)\nloss squared(w(number(kind)), 1)"),
    ),
    "AMP290": Explanation("a layer that nothing uses", "A warning: the layer has parameters that are never trained."),
    "AMP291": Explanation("a field that nothing reads", "A warning: the field has to be in the data all the same."),
}
