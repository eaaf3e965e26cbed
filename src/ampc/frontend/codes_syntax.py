"""The long forms of mistakes in syntax (AMP1xx), each with a wrong and a right program; and the programs that examples of the front end share."""

from __future__ import annotations

from ampc.explanation import Explanation

FIELDS = ("axis token", "x: float[token]", "y: float")
GRAPH = ("axis node, edge", "x: float[node]", "source, target: node[edge]", "kind: int[edge] < 2", "y: float")
TREE = ("axis node", "v: float[node]", "left, right: node[node] or none", "t: float[node]")


def program(body: str, fields: tuple[str, ...] = FIELDS, head: str = "model m(hidden = 8):") -> str:
    """Return a small program: a head, an instance with `fields`, and the lines of `body` indented by one step."""
    lines = [head, "    instance:", *(f"        {f}" for f in fields)]
    return "\n".join([*lines, *(f"    {line}" if line else "" for line in body.split("\n"))])


LOOP = "w = Linear(1, 1)\nh = zeros(1)\nloop t in token carry h:\n    h = h + w(x[t])\nloss squared(h, y)"
GATHER = "w = Linear(1, 1)\neach e in edge:\n    a[target[e]] += w(x[source[e]])\nloss squared(sum(node, a), y)"
VISIT = (
    "w = Linear(1, 1)\nvisit n in node after left[n], right[n] carry h:\n    branch left[n]:\n        none: h = w(v[n])\n"
    "        else: h = h[left[n]] + h[right[n]]\n    merge h\n    loss squared(h, t[n])"
)
_FLAT = ("x: float[3]", "kind: int < 2", "label: int < 4", "y: float or none")


def flat(body: str) -> str:
    return program(body, _FLAT)


_MINIMAL = "w = Linear(3, 1)\nloss squared(w(x), 1)"

SYNTAX: dict[str, Explanation] = {
    "AMP101": Explanation(
        "a character without a meaning",
        "Programs are made of names (`a-z`, `A-Z`, `0-9`, `_`), numbers, the operators `+ - * / // % ** < <= > >= == !=`, "
        "brackets, `,` `:` `.` `=` and "
        "comments from `#` to the end of the line.",
        flat("w = Linear(3, 1);\nloss squared(w(x), 1)"),
        flat(_MINIMAL),
    ),
    "AMP102": Explanation(
        "a text without its closing quote",
        "A text stands between two `\"` or two `'` on one line. Only settings and options of layers take texts.",
        flat(_MINIMAL + '\ntrain:\n    until = "loss < 0.1'),
        flat(_MINIMAL + '\ntrain:\n    until = "loss < 0.1"'),
    ),
    "AMP103": Explanation(
        "tabs and spaces mixed",
        "Blocks are told by indentation. A tab has no fixed width, so that a file is indented either with spaces or with tabs. "
        "Four spaces are usual.",
        program("w = Linear(1, 1)\nh = zeros(1)\nloop t in token carry h:\n\t\th = h + w(x[t])\nloss squared(h, y)"),
        program(LOOP),
    ),
    "AMP104": Explanation(
        "a bracket without its partner",
        "Each `(` needs its `)` and each `[` its `]`. Inside brackets a line may go on to the next one, so that a forgotten "
        "bracket is noticed where a new "
        "statement begins; the mark is at the bracket that is open.",
        flat("w = Linear(3, 1\nloss squared(w(x), 1)"),
        flat(_MINIMAL),
    ),
    "AMP105": Explanation(
        "an empty program",
        "The file holds nothing but comments and empty lines. A program begins with `model name(hidden = 128):`.",
        "# nothing yet",
        flat(_MINIMAL),
    ),
    "AMP106": Explanation(
        "not a number",
        "Numbers are written in decimal: `128`, `1_000`, `0.5`, `1e-3`.",
        flat("w = Linear(3, 1)\nloss squared(w(x), 1.2.3)"),
        flat(_MINIMAL),
    ),
    "AMP110": Explanation(
        "something else was expected",
        "No rule of the language goes on with what stands here. The message lists what could; `docs/language.md` shows every "
        "construct with an example.",
        flat("w = Linear(3, 1)\nloss squared(w(x) 1)"),
        flat(_MINIMAL),
    ),
    "AMP111": Explanation(
        "a colon is missing",
        "The first line of a block ends with `:`. The lines that belong to it follow, indented.",
        program(LOOP.replace("carry h:", "carry h")),
        program(LOOP),
    ),
    "AMP112": Explanation(
        "unexpected indentation",
        "A line may be indented deeper than the one above only where that one opens a block with `:`, or inside brackets.",
        flat("w = Linear(3, 1)\n    h = w(x)\nloss squared(h, 1)"),
        flat("w = Linear(3, 1)\nh = w(x)\nloss squared(h, 1)"),
    ),
    "AMP113": Explanation(
        "indentation that fits no block",
        "A line that ends a block goes back to the indentation of one of the blocks around it.",
        program(LOOP.replace("    h = h", "        h = h").replace("\nloss", "\n    loss")),
        program(LOOP),
    ),
    "AMP114": Explanation(
        "an empty block",
        "A block holds at least one line. Leave the whole block out if there is nothing to do.",
        program(LOOP.replace("    h = h + w(x[t])\n", "")),
        program(LOOP),
    ),
    "AMP115": Explanation(
        "a word of another language",
        "Control flow is `loop`, `each`, `visit` and `branch … merge`; there is no `if`, `for`, `while` or `import`.",
        program("w = Linear(1, 1)\nh = zeros(1)\nfor t in token:\n    h = h + w(x[t])\nloss squared(h, y)"),
        program(LOOP),
    ),
    "AMP116": Explanation(
        "a misspelt word at the start of a line",
        "A line that isn't an assignment starts with a word of the language.",
        program(LOOP.replace("loop t", "lop t")),
        program(LOOP),
    ),
    "AMP117": Explanation(
        "a line in the wrong place",
        "Axes and fields stand in `instance:`, settings in `train:`, arms in a `branch`, `merge` below it, functions and both "
        "blocks directly in the model.",
        flat("w = Linear(3, 1)\nz: float\nloss squared(w(x), 1)"),
        program(_MINIMAL, (*_FLAT, "z: float")),
    ),
    "AMP118": Explanation(
        "the wrong sign for giving or comparing a value",
        "`=` gives a value, `==` compares, `+=`, `mean=` and `max=` gather into an element of another axis.",
        flat("w = Linear(3, 1)\nh == w(x)\nloss squared(h, 1)"),
        flat("w = Linear(3, 1)\nh = w(x)\nloss squared(h, 1)"),
    ),
    "AMP119": Explanation(
        "a word of the language as a name",
        "Words such as `loop`, `merge`, `axis`, `loss`, `output` and `train` can't name a field, layer or value.",
        flat("output = Linear(3, 1)\nloss squared(output(x), 1)"),
        flat("outputs = Linear(3, 1)\nloss squared(outputs(x), 1)"),
    ),
    "AMP120": Explanation(
        "no `instance:` block",
        "A model says what one instance of its data consists of: its axes, and the fields over them.",
        "model m():\n    w = Linear(1, 1)\n    loss squared(w(1), 2)",
        flat(_MINIMAL),
    ),
    "AMP121": Explanation(
        "a block twice",
        "There is one `instance:` and one `train:` block.",
        flat(_MINIMAL + "\ntrain:\n    epochs = 3\ntrain:\n    seed = 1"),
        flat(_MINIMAL + "\ntrain:\n    epochs = 3\n    seed = 1"),
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
        flat("a, b = Linear(3, 1)\nloss squared(a(x) + b(x), 1)"),
        flat("a = Linear(3, 1)\nb = Linear(3, 1)\nloss squared(a(x) + b(x), 1)"),
    ),
    "AMP124": Explanation(
        "`return` is missing or misplaced",
        "A `def` ends with `return`, and nothing else does. It is expanded where it is called.",
        flat("def twice(a):\n    b = a + a\nw = Linear(3, 1)\nloss squared(twice(w(x)), 1)"),
        flat("def twice(a):\n    return a + a\nw = Linear(3, 1)\nloss squared(twice(w(x)), 1)"),
    ),
    "AMP125": Explanation(
        "names and values don't pair",
        "As many values as names, or one call of a function that returns as many.",
        flat("w = Linear(3, 1)\na, b, c = w(x), 1\nloss squared(a + b + c, 1)"),
        flat("w = Linear(3, 1)\na, b = w(x), 1\nloss squared(a + b, 1)"),
    ),
    "AMP126": Explanation(
        "an unknown way to gather",
        "Values are gathered by `+=` (sum), `mean=` or `max=`.",
        program(GATHER.replace("+=", "min="), GRAPH),
        program(GATHER, GRAPH),
    ),
    "AMP127": Explanation(
        "no call after `loss` or `metric`",
        "A loss is one of the functions that the language knows as such, applied to a prediction and a target.",
        flat("w = Linear(3, 1)\nloss (w(x) - 1) ** 2"),
        flat(_MINIMAL),
    ),
    "AMP128": Explanation(
        "a loop over something else than an axis",
        "A loop goes over an axis, `reversed(axis)` or `range(count)`; `loop while condition at most count` ends by itself.",
        program(LOOP.replace("in token", "in enumerate(token)")),
        program(LOOP),
    ),
    "AMP129": Explanation(
        "an arm that can't be",
        "Arms are integers (`0:`, `1, 2:`), `true:`, `false:`, `none:` or `else:`.",
        flat("w = Linear(3, 1)\nbranch kind:\n    0.5: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
        flat("w = Linear(3, 1)\nbranch kind:\n    0: h = w(x)\n    else: h = zeros(1)\nmerge h\nloss squared(h, 1)"),
    ),
    "AMP130": Explanation(
        "an expression of a form that isn't supported",
        "Only names are indexed and called; comparisons aren't chained. Give the inner value a name first.",
        flat("w = Linear(3, 1)\nloss squared(w(x)[0], 1)"),
        flat("w = Linear(3, 1)\nh = w(x)\nloss squared(h[0:1], 1)"),
    ),
    "AMP131": Explanation(
        "options out of order",
        "Operands come first, then options as `name = value`, each once.",
        flat("w = Linear(3, bias = false, 1)\nloss squared(w(x), 1)"),
        flat("w = Linear(3, 1, bias = false)\nloss squared(w(x), 1)"),
    ),
    "AMP181": Explanation("the program is too large", "A program has at most 1,000,000 bytes. Data belongs into data files."),
    "AMP182": Explanation("the program has too many words", "A program has at most 100,000 words and signs."),
    "AMP183": Explanation(
        "nested too deep",
        "Blocks and brackets are nested at most 100 deep, and an expression has at most 100 operators in a row. Split it into "
        "named values or a `def`.",
        flat("w = Linear(3, 1)\nloss squared(w(x), " + "(" * 120 + "1" + ")" * 120 + ")"),
        flat(_MINIMAL),
    ),
    "AMP184": Explanation(
        "an integer is too large",
        "Integers are at most 2^53, so that they are exact everywhere.",
        flat("w = Linear(3, 99999999999999999999)\nloss squared(w(x), 1)"),
        flat(_MINIMAL),
    ),
    "AMP185": Explanation(
        "a number is too large", "Numbers are at most 1.8e308.", flat("w = Linear(3, 1)\nloss squared(w(x), 1e999)"), flat(_MINIMAL)
    ),
    "AMP186": Explanation(
        "a name is too long",
        "Names have at most 64 characters.",
        flat(f"{'w' * 70} = Linear(3, 1)\nloss squared({'w' * 70}(x), 1)"),
        flat(_MINIMAL),
    ),
}
