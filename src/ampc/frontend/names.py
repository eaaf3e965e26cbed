"""What the language knows by name: functions, layers, losses, metrics, settings, with what each takes.

One table for each concept; `check` and `ampc.lower` both read them. What a name computes is told by `ampc.ir.ops`, not here.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

What = Literal["value", "field", "axis", "size", "number", "flag", "word"]
"""What an operand or option is: value: any value (a float field counts) · field: an int or flag field, or an integer value ·
axis · size: a positive integer known when compiling · number: a number known when compiling · flag: `true` or `false` · word: one of `choices`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One operand or option. `low`/`high` are inclusive, `above`/`below` exclusive bounds. `default` is for the documentation."""

    name: str
    what: What = "value"
    default: int | float | bool | str | None = None
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Callable:
    """A function, layer, loss or metric: operands in order, then options (`name = value`, all optional), and a line of help.

    `over_axis`: may be called with an axis first, then works over its elements: `sum(atom, x)`.
    `op` is the operation of the table `ampc.ir.ops` that it stands for ("" where `lower` makes something else of it).
    """

    name: str
    operands: tuple[Option, ...]
    options: tuple[Option, ...] = ()
    help: str = ""
    over_axis: bool = False
    op: str = ""

    def names_constant(self, place: int, name: str) -> bool:
        """Say whether the operand at a place is a constant of that name, which may be written: `dropout(x, rate = 0.1)`."""
        operand = self.operands[place] if place < len(self.operands) else None
        return operand is not None and operand.name == name and operand.what in ("size", "number")

    @property
    def usage(self) -> str:
        """Return how it is written: `pad(x, columns)`."""
        parts = [o.name for o in self.operands] + [f"{o.name} = {shown(o.default)}" for o in self.options]
        return f"{self.name}({', '.join(parts)})"


def shown(value: object) -> str:
    """Return a constant as it is written in a program."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _f(name: str, operands: str, help: str, *options: Option, over_axis: bool = False, op: str | None = None) -> Callable:
    """Return a function; in `operands` a name may carry its kind: "x columns:size"."""
    parsed = []
    for word in operands.split():
        operand, _, what = word.partition(":")
        parsed.append(Option(operand, what or "value"))  # type: ignore[arg-type]  # the kinds below are those of What
    return Callable(name, tuple(parsed), options, help, over_axis, name if op is None else op)


def _table(*entries: Callable) -> dict[str, Callable]:
    return {e.name: e for e in entries}


FUNCTIONS: dict[str, Callable] = _table(
    _f("relu", "x", "the greater of x and 0"),
    _f("sigmoid", "x", "1 / (1 + exp(-x))"),
    _f("tanh", "x", "hyperbolic tangent"),
    _f("sin", "x", "sine of x, in radians"),
    _f("cos", "x", "cosine of x, in radians"),
    _f("exp", "x", "e to the power x"),
    _f("log", "x", "natural logarithm"),
    _f("sqrt", "x", "square root"),
    _f("abs", "x", "absolute value"),
    _f("square", "x", "x times x"),
    _f("softplus", "x", "log(1 + exp(x))"),
    _f("leaky_relu", "x", "x where positive, else slope times x", Option("slope", "number", 0.01, low=0)),
    _f("elu", "x", "x where positive, else exp(x) - 1"),
    _f("gelu", "x", "x times the normal distribution function at x"),
    _f("silu", "x", "x times sigmoid(x)"),
    _f("sign", "x", "-1, 0 or 1; no gradient"),
    _f("reciprocal", "x", "1 / x"),
    _f("clip", "x low:number high:number", "x kept within low and high"),
    _f("minimum", "a b", "the lesser of two values, column by column"),
    _f("maximum", "a b", "the greater of two values, column by column"),
    _f("dot", "a b", "sum over the columns of a times b: one column"),
    _f("sum", "x", "sum over the columns; `sum(axis, x)`: over the elements of an axis, 0 where there are none", over_axis=True, op=""),
    _f("mean", "x", "mean over the columns; `mean(axis, x)`: over the elements of an axis, 0 where there are none", over_axis=True, op=""),
    _f("max", "x", "greatest of the columns; `max(axis, x)`: over the elements of an axis, 0 where there are none", over_axis=True, op=""),
    _f("softmax", "x", "exp(x) over its sum in each row; `softmax(axis, x)`: over the elements of an axis, column by column", over_axis=True),
    _f("log_softmax", "x", "logarithm of softmax over the columns"),
    _f("pad", "x columns:size", "x with zeros appended up to so many columns"),
    _f("zeros", "columns:size", "a row of zeros; `zeros(axis, columns)`: one for each element", over_axis=True, op="fill"),
    _f("ones", "columns:size", "a row of ones; `ones(axis, columns)`: one for each element", over_axis=True, op="fill"),
    _f("one_hot", "i:field columns:size", "1 in column i, else 0"),
    _f("number", "i:field", "an int or a flag as a value of one column; `number(t)`: the place of a block's element or the turn of a loop, from 0"),
    _f("argmax", "x", "the column of the greatest value, the first of equal ones: an integer, no gradient"),
    _f("stop_gradient", "x", "x, through which no gradient flows back"),
    _f("dropout", "x rate:number", "in training, each number is zero with probability rate, else divided by 1 - rate"),
)

_WEIGHT = Option("weight", "number", 1.0, low=0)

LOSSES: dict[str, Callable] = _table(
    _f("cross_entropy", "logits label:field", "minus the logarithm of the label's softmax", _WEIGHT),
    _f("squared", "x target", "(x - target) squared, without a half, summed over the columns", _WEIGHT),
    _f("absolute", "x target", "|x - target| summed over the columns; the gradient at 0 is 0", _WEIGHT),
    _f("huber", "x target", "half the square of x - target within delta, a straight line beyond", Option("delta", "number", 1.0, above=0), _WEIGHT),
    _f("binary_cross_entropy", "logit target", "cross entropy of sigmoid(logit) and a flag, a 0/1 int or a float within 0 and 1", _WEIGHT),
    _f("value", "x", "x itself, summed over the columns: a loss of your own making", _WEIGHT),
)

METRICS: dict[str, Callable] = _table(
    _f("accuracy", "logits label:field", "share of rows whose greatest logit is the label's"),
    _f("top_k", "logits label:field", "share of rows whose label is among the k greatest logits", Option("k", "size", 5)),
    _f("binary_accuracy", "logit target", "share of logits on the side of 0 that the target names"),
    _f("absolute_error", "x target", "mean of |x - target|"),
    _f("squared_error", "x target", "mean of (x - target) squared"),
    _f("root_mean_square_error", "x target", "root of the mean of (x - target) squared"),
    _f("score", "x", "mean of x; the greater the better"),
    _f("error", "x", "mean of x; the smaller the better"),
)

INITS = ("glorot", "he", "normal", "uniform", "zeros", "ones", "identity")

_PLACE = (Option("replicas", "size", 1, high=1024), Option("device", "word", ""))
_INIT = Option("init", "word", "glorot", choices=INITS)
_SCALE = Option("scale", "number", 1.0, above=0)

LAYERS: dict[str, Callable] = _table(
    _f(
        "Linear",
        "inputs:size outputs:size",
        "x @ w + b",
        Option("bias", "flag", True),
        _INIT,
        _SCALE,
        *_PLACE,
        Option("columns", "size", 1, high=4096),
        Option("rows", "size", 1, high=4096),
        op="linear",
    ),
    _f(
        "Embedding",
        "rows:size columns:size",
        "the row of a table that an int field names",
        dataclasses.replace(_INIT, default="normal"),
        dataclasses.replace(_SCALE, default=0.1),
        *_PLACE,
        op="lookup",
    ),
    _f(
        "LayerNorm",
        "columns:size",
        "each row to mean 0 and variance 1, times a gain, plus a bias",
        Option("epsilon", "number", 1e-5, above=0),
        *_PLACE,
        op="layer_norm",
    ),
)

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """A line of the `train:` block. `per_layer`: also as `layer.name = value`. Ranges are checked when a run resolves its settings."""

    name: str
    what: Literal["int", "float", "flag", "word", "text"]
    help: str
    choices: tuple[str, ...] = ()
    per_layer: bool = False


def _settings(*rows: Setting) -> dict[str, Setting]:
    return {r.name: r for r in rows}


SETTINGS: dict[str, Setting] = _settings(
    Setting("optimizer", "word", "how a layer updates itself", OPTIMIZERS, per_layer=True),
    Setting("learning_rate", "float", "step size before the schedule's factor", per_layer=True),
    Setting("min_update_frequency", "int", "instances whose gradients a layer gathers before it updates itself", per_layer=True),
    Setting("max_active_keys", "int", "instances in flight at once"),
    Setting("group", "int", "instances admitted and fired together"),
    Setting("group_by_length", "flag", "put instances of equal length into one group"),
    Setting("mode", "word", "`sync` drains before every update", ("async", "sync")),
    Setting("epochs", "int", "how often the training data is passed through"),
    Setting("until", "text", "stop once this holds after a validation, such as `accuracy >= 0.97`"),
    Setting("seed", "int", "of initial weights, order and dropout"),
    Setting("shuffle", "flag", "a new order in each epoch"),
    Setting("momentum", "float", "of `momentum`", per_layer=True),
    Setting("beta1", "float", "of `adam` and `adamw`", per_layer=True),
    Setting("beta2", "float", "of `adam` and `adamw`", per_layer=True),
    Setting("epsilon", "float", "of `adam` and `adamw`", per_layer=True),
    Setting("weight_decay", "float", "decoupled decay of the weights (`adamw`)", per_layer=True),
    Setting("l2", "float", "adds l2 times the weight to its gradient", per_layer=True),
    Setting("clip_norm", "float", "largest norm of a layer's gradient at an update; 0 is no limit", per_layer=True),
    Setting("clip_value", "float", "largest absolute value in a gradient at an update; 0 is no limit", per_layer=True),
    Setting(
        "staleness", "word", "what a backward uses: the weights of now (`plain`), of its forward (`stash`), or an estimate of these (`corrected`)",
        ("plain", "stash", "corrected"),
    ),
    Setting("precision", "word", "what matrix products are made of; `bf16` where the processor and MKL have it", ("fp32", "bf16")),
    Setting("average_every", "int", "instances between averaging the copies of replicated layers; 0: at the end of an epoch only"),
    Setting("schedule", "word", "how the learning rate moves", ("constant", "step", "cosine", "linear")),
    Setting("schedule_clock", "word", "what the schedule counts", ("epochs", "instances")),
    Setting("schedule_every", "int", "`step`: ticks of the clock between two drops"),
    Setting("schedule_factor", "float", "`step`: what the rate is multiplied by at a drop"),
    Setting("schedule_span", "int", "`cosine`, `linear`: ticks until the lowest rate; 0 is the whole run"),
    Setting("schedule_floor", "float", "`cosine`, `linear`: lowest rate as a share of learning_rate"),
    Setting("warmup", "int", "ticks in which the rate first rises to its full value"),
    Setting("patience", "int", "stop after so many epochs without a better `watch`; 0 is never"),
    Setting("watch", "word", "the value that decides what is best: a metric or `loss`"),
    Setting("on_nan", "word", "when a loss or value is not finite", ("stop", "skip", "ignore")),
    Setting("workers", "int", "worker threads; 0 takes as many as the program was placed on"),
    Setting("driver", "word", "`step` is one thread, repeatable bit for bit", ("threads", "step")),
    Setting("checkpoint_every", "int", "epochs between checkpoints; 0 writes only the last"),
    Setting("checkpoint_instances", "int", "also write one after so many instances within an epoch; 0 is never"),
    Setting("validate_instances", "int", "also validate after so many instances within an epoch; where `until` holds, the run ends there"),
    Setting("keep", "int", "checkpoints that are kept, beside the best"),
    Setting("trace", "flag", "write down all that happens in a training pass, as `trace/` of the run folder"),
    Setting("trace_epoch", "int", "the epoch that `trace` and `profile` are about; 0 is the last"),
    Setting("profile", "flag", "measure where the time of a training pass goes, into `report/profile.json` of the run folder"),
)
LAYER_SETTINGS = tuple(name for name, s in SETTINGS.items() if s.per_layer)

TYPES = ("int", "float", "flag")

ALIASES = {
    "concat": "[a, b]",
    "concatenate": "[a, b]",
    "cat": "[a, b]",
    "min": "minimum(a, b)",
    "pow": "x ** 2",
    "relu6": "clip(x, 0, 6)",
    "len": "sum(axis, ones(axis, 1))",
    "swish": "silu(x)",
    "softmin": "softmax(-x)",
    "transpose": "a layer with its sizes swapped",
    "matmul": "dot(a, b) or a layer",
    "print": "output name",
    "range": "loop t in range(n) carry h:",
    "reversed": "loop t in reversed(axis) carry h:",
    "embedding": "Embedding(rows, columns)",
    "linear": "Linear(inputs, outputs)",
    "layer_norm": "LayerNorm(columns)",
    "dense": "Linear(inputs, outputs)",
    "float": "number(i)",
    "int": "argmax(x)",
}
"""Functions that others call by these names, and what is written here."""

FOREIGN_LAYERS = {
    "Dense": "Linear",
    "LSTM": "",
    "GRU": "",
    "RNN": "",
    "Conv1d": "",
    "Conv2d": "",
    "Dropout": "",
    "BatchNorm": "LayerNorm",
    "Parameter": "",
}
"""Layers of other tools; "" where a `def` or a function takes their place."""
