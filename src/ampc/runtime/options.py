"""Every setting of a run: its type, default, range and one line of help, in one table; how the sources of settings are combined.

`resolve` takes flags over `--set` over the model's `train:` block over `ampc.toml` over the defaults, and refuses unknown names and
values out of range, naming where they came from. It reads no file but `ampc.toml` and starts nothing.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error
from ampc.ir.copies import names_of
from ampc.place import usable_cores

Value = int | float | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a setting accepts. `low` and `high` are inclusive; `above` is an exclusive lower bound. `per_layer`: a layer may have its own."""

    kind: Literal["int", "float", "bool", "str"]
    help: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    per_layer: bool = False

    def expected(self) -> str:
        """Return what the setting accepts, in words."""
        if self.choices:
            return "one of " + ", ".join(f"`{c}`" for c in self.choices)
        noun = {"int": "an integer", "float": "a number", "bool": "`true` or `false`", "str": "a text"}[self.kind]
        bounds = []
        if self.low is not None:
            bounds.append(f"at least {self.low:g}")
        if self.above is not None:
            bounds.append(f"above {self.above:g}")
        if self.high is not None:
            bounds.append(f"at most {self.high:g}")
        if self.below is not None:
            bounds.append(f"below {self.below:g}")
        return f"{noun} {' and '.join(bounds)}".rstrip()


def _f(default: Any, kind: Literal["int", "float", "bool", "str"], help: str, **limits: Any) -> Any:
    return dataclasses.field(default=default, metadata={"setting": Setting(kind, help, **limits)})


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine needs to know. `per_layer`: layer name -> the settings in which it differs (names as here).

    seed also draws the initial parameters and dropout masks. learning_rate is the base; a schedule scales it between passes.
    """

    workers: int = 1
    max_active_keys: int = 64
    min_update_frequency: int = 32
    per_layer: dict[str, dict[str, Value]] = dataclasses.field(default_factory=dict)
    group: int = 1
    group_by_length: bool = False
    mode: Literal["async", "sync"] = "async"
    driver: Literal["threads", "step", "simulate"] = "threads"
    seed: int = 0
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = "adam"
    learning_rate: float = 0.001
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    l2: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    staleness: str = "plain"
    average_every: int = 0
    precision: Literal["fp32", "bf16"] = "fp32"


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """All settings of a run, resolved and checked. `per_layer` as in `EngineOptions`; `origins`: setting -> where its value came from."""

    epochs: int = _f(10, "int", "how often the training data is passed through", low=0, high=10**9)
    until: str = _f("", "str", "stop once this holds after a validation, e.g. `accuracy >= 0.97`")
    workers: int = _f(0, "int", "workers, dealt to at most one thread for each usable core; 0 takes what the program was placed on", low=0, high=256)
    max_active_keys: int = _f(64, "int", "instances in flight at once (groups, where `group` is above 1)", low=1, high=1_000_000)
    min_update_frequency: int = _f(32, "int", "instances whose gradients a layer gathers before it updates itself", low=1, high=10**9, per_layer=True)
    group: int = _f(1, "int", "instances admitted and fired together", low=1, high=65536)
    group_by_length: bool = _f(False, "bool", "put instances of equal length into one group")
    mode: Literal["async", "sync"] = _f("async", "str", "`sync` drains before every update", choices=("async", "sync"))
    driver: Literal["threads", "step", "simulate"] = _f(
        "threads", "str", "`step` is one thread, repeatable bit for bit", choices=("threads", "step")  # `simulate` is for `ampc simulate` alone
    )
    seed: int = _f(0, "int", "seeds initial weights, order and dropout", low=0, high=2**63 - 1)
    shuffle: bool = _f(True, "bool", "draw a new order for each epoch, from the seed and the epoch alone")
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = _f(
        "adam", "str", "how a layer updates itself", choices=("sgd", "momentum", "adam", "adamw"), per_layer=True
    )
    learning_rate: float = _f(0.001, "float", "step size before the schedule's factor", low=0, per_layer=True)
    momentum: float = _f(0.9, "float", "of `momentum`", low=0, below=1, per_layer=True)
    beta1: float = _f(0.9, "float", "of `adam` and `adamw`", low=0, below=1, per_layer=True)
    beta2: float = _f(0.999, "float", "of `adam` and `adamw`", low=0, below=1, per_layer=True)
    epsilon: float = _f(1e-8, "float", "of `adam` and `adamw`", above=0, per_layer=True)
    weight_decay: float = _f(0.0, "float", "decoupled decay of the weights (`adamw`)", low=0, per_layer=True)
    l2: float = _f(0.0, "float", "adds l2 times the weight to its gradient", low=0, per_layer=True)
    clip_norm: float = _f(0.0, "float", "largest norm of a layer's gradient at an update; 0 is no limit", low=0, per_layer=True)
    clip_value: float = _f(0.0, "float", "largest absolute value in a gradient at an update; 0 is no limit", low=0, per_layer=True)
    staleness: str = _f(
        "plain", "str", "what a backward uses: the weights of now (`plain`), of its forward (`stash`), or an estimate of these (`corrected`)",
        choices=("plain", "stash", "corrected"),
    )  # fmt: skip
    precision: Literal["fp32", "bf16"] = _f(
        "fp32", "str", "what matrix products are made of; `bf16` where the processor and MKL have it (`ampc doctor`)", choices=("fp32", "bf16")
    )
    average_every: int = _f(0, "int", "instances between averaging the copies of replicated layers; 0 averages at the end of an epoch only", low=0)
    schedule: str = _f("constant", "str", "how the learning rate moves", choices=("constant", "step", "cosine", "linear"))
    schedule_clock: str = _f("epochs", "str", "what the schedule counts", choices=("epochs", "instances"))
    schedule_every: int = _f(10, "int", "`step`: ticks of the clock between two drops", low=1)
    schedule_factor: float = _f(0.1, "float", "`step`: what the rate is multiplied by at a drop", above=0, high=1)
    schedule_span: int = _f(0, "int", "`cosine`, `linear`: ticks until the lowest rate; 0 is the whole run", low=0)
    schedule_floor: float = _f(0.0, "float", "`cosine`, `linear`: lowest rate as a share of learning_rate", low=0, high=1)
    warmup: int = _f(0, "int", "ticks in which the rate first rises to its full value", low=0)
    patience: int = _f(0, "int", "stop after so many epochs without a better `watch`; 0 is never", low=0)
    watch: str = _f("", "str", "the value that decides what is best: a metric or `loss`; empty takes the first metric, else the loss")
    on_nan: Literal["stop", "skip", "ignore"] = _f("stop", "str", "when a loss or value is not finite", choices=("stop", "skip", "ignore"))
    checkpoint_every: int = _f(1, "int", "epochs between checkpoints; 0 writes only the last", low=0)
    checkpoint_instances: int = _f(0, "int", "also write one after so many instances within an epoch; 0 is never", low=0)
    validate_instances: int = _f(0, "int", "also validate after so many instances within an epoch; where `until` holds, the run ends there", low=0)
    keep: int = _f(3, "int", "checkpoints that are kept, beside the best", low=1, high=10_000)
    trace: bool = _f(False, "bool", "write down all that happens in a training pass, as `trace/` of the run folder")
    profile: bool = _f(False, "bool", "measure where the time of a training pass goes, into `report/profile.json` of the run folder")
    trace_epoch: int = _f(0, "int", "the epoch that `trace` and `profile` are about; 0 is the last", low=0)
    per_layer: dict[str, dict[str, Value]] = dataclasses.field(default_factory=dict)
    origins: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def engine(self) -> EngineOptions:
        """Return the part that an engine needs; `workers` 0 becomes the number of usable cores."""
        names = [f.name for f in dataclasses.fields(EngineOptions)]
        values = {name: getattr(self, name) for name in names}
        values["workers"] = self.workers or usable_cores()
        if self.driver == "step":
            values["workers"] = self.workers or 1
        return EngineOptions(**values)


SETTINGS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in dataclasses.fields(RunOptions) if "setting" in f.metadata}
PER_LAYER: tuple[str, ...] = tuple(name for name, s in SETTINGS.items() if s.per_layer)


TABLES = ("run", "input")
"""The tables of a settings file; `[input]` is there because a run folder's `config.toml` is one too."""

NOT_SETTINGS: dict[str, str] = {
    **dict.fromkeys(("init", "weights", "checkpoint"), "weights to begin with: `program.load_weights(...)` before the call, or `--init`"),
    **dict.fromkeys(("valid", "val", "validation_data", "valid_data"), "validation data: the argument `validation=`, or `--valid`"),
    **dict.fromkeys(("output", "out", "folder", "run_dir"), "where a run is written: the argument `run_folder=`, or `-o`"),
    "lr": "did you mean `learning_rate`?",
    "batch_size": "there are no batches: `min_update_frequency` instances make an update, `max_active_keys` are in flight",
}
"""What people take for a setting -> what it is called here."""


# ------------------------------------------------------------------------------------------ one value


def check_value(name: str, value: object, where: str) -> Value:
    """Return `value` as setting `name` wants it (an integer becomes a float where a float is wanted); raise AMP702 if it can't be."""
    s = SETTINGS[name]
    good = value
    if s.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        good = float(value)
    types = {"int": int, "float": float, "bool": bool, "str": str}
    fits = isinstance(good, types[s.kind]) and (s.kind == "bool" or not isinstance(good, bool))
    if fits and isinstance(good, int | float) and not isinstance(good, bool):
        fits = (
            math.isfinite(good)
            and (s.low is None or good >= s.low)
            and (s.high is None or good <= s.high)
            and (s.above is None or good > s.above)
            and (s.below is None or good < s.below)
        )
    if fits and s.choices:
        fits = good in s.choices
    if not fits:
        near = did_you_mean(value, s.choices) if s.choices and isinstance(value, str) else None
        raise error("AMP702", f"`{name}` {where} expects {s.expected()}, got `{shown(value)}`", help=near)
    assert isinstance(good, int | float | str | bool)
    return good


def shown(value: object) -> str:
    """Return a value as it is written in a settings file, shortened."""
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_value(text: str) -> Value:
    """Return the value that `text` of `--set name=text` stands for: an integer, a number, `true`, `false`, else the text itself."""
    bare = text.strip()
    if bare in ("true", "false"):
        return bare == "true"
    for kind in (int, float):
        try:
            return kind(bare)
        except ValueError:
            continue
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "'\"":
        return bare[1:-1]
    return bare


# ------------------------------------------------------------------------------------------ the sources


@dataclasses.dataclass(slots=True)
class _Collected:
    values: dict[str, Value]
    per_layer: dict[str, dict[str, Value]]
    origins: dict[str, str]
    mistakes: list[Diagnostic]

    def put(self, name: str, value: object, where: str) -> None:
        if name not in SETTINGS:
            self.mistakes.append(unknown_setting(name, where))
            return
        try:
            self.values[name] = check_value(name, value, where)
            self.origins[name] = where
        except AmpError as e:
            self.mistakes += e.diagnostics

    def put_layer(self, layer: str, name: str, value: object, where: str, layers: Iterable[str]) -> None:
        members = layer_members(layer, layers)
        if not members:
            hint = did_you_mean(layer, layers)
            known = "layers: " + ", ".join(f"`{x}`" for x in layers)
            self.mistakes.append(Diagnostic("AMP705", f"`{layer}.{name}` {where}: the model has no layer `{layer}`", help=hint or known))
            return
        if name not in PER_LAYER:
            if name in SETTINGS:
                text = f"`{name}` {where} is a setting of the whole run, not of layer `{layer}`"
                self.mistakes.append(Diagnostic("AMP701", text, help="a layer may set " + ", ".join(f"`{x}`" for x in PER_LAYER)))
            else:
                self.mistakes.append(unknown_setting(name, where, PER_LAYER))
            return
        try:
            checked = check_value(name, value, f"of layer `{layer}` {where}")
        except AmpError as e:
            self.mistakes += e.diagnostics
            return
        for member in members:
            self.per_layer.setdefault(member, {})[name] = checked
            self.origins[f"{member}.{name}"] = where


def unknown_setting(name: str, where: str, known: Iterable[str] = ()) -> Diagnostic:
    """Return the diagnostic for a setting that isn't one."""
    hint = NOT_SETTINGS.get(name) or did_you_mean(name, known or SETTINGS) or "`ampc run MANIFEST --print-config` lists all settings"
    return Diagnostic("AMP701", f"unknown setting `{name}` {where}", help=hint)


def layer_members(layer: str, layers: Iterable[str]) -> list[str]:
    """Return the layers that `layer` names: itself, or members `layer.0`, ... of a family, copies `layer~0`, ..., parts `layer@0`, ..."""
    return [x for x in layers if layer in names_of(x)]


def resolve(
    *,
    flags: Mapping[str, Value | None] | None = None,
    sets: Iterable[str] = (),
    train: Mapping[str, Value] | None = None,
    layers: Mapping[str, Mapping[str, Value]] | None = None,
    model_parameters: Iterable[str] = (),
    config: Path | None = None,
    resumed: Mapping[str, Value] | None = None,
    spelt: str = "--",
) -> RunOptions:
    """Return the options of a run from all sources, the strongest first: flags, `sets` ("name=value", "layer.name=value"), train, config, defaults.

    flags: None stands for "not given". train: the model's `train:` block. layers: every layer of the model with the settings it declares
    (weaker than `ampc.toml`'s tables for layers and `sets`). model_parameters: names that only `ampc compile --set` can change.
    config: an `ampc.toml` with a `[run]` table and `[run.layer.NAME]` tables; a file that doesn't exist is ignored.
    resumed: settings of the run that is continued, stronger than `train`. spelt: "--" where `flags` are those of the command line, "=" for arguments
    of a call in Python.
    Raises AmpError with every mistake found: AMP701 unknown, AMP702 type or range, AMP705 layer, AMP706 form, AMP714 a clash.
    """
    layers = layers or {}
    got = _Collected({}, {}, {}, [])
    for layer, settings in layers.items():
        for name, value in settings.items():
            got.put_layer(layer, name, value, "in the model", layers)
    if config is not None:
        _take_config(got, config, layers)
    for name, value in (train or {}).items():
        got.put(name, value, "in the `train:` block")
    for name, value in (resumed or {}).items():
        got.put(name, value, "in the resumed run")
    elsewhere = len(got.mistakes)
    for text in sets:
        _take_set(got, text, layers, set(model_parameters))
    for name, flag in (flags or {}).items():
        if flag is not None:
            got.put(name, flag, f"(`--{name.replace('_', '-')}`)" if spelt == "--" else f"(`{name}=`)")
    if got.mistakes:
        raise AmpError(got.mistakes, exit_code=1 if elsewhere or spelt != "--" else 2)
    options = RunOptions(**got.values, per_layer=got.per_layer, origins=got.origins)  # type: ignore[arg-type]  # check_value has checked each type
    _check_together(options)
    return options


def _take_config(got: _Collected, path: Path, layers: Mapping[str, Mapping[str, Value]]) -> None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as e:
        got.mistakes.append(Diagnostic("AMP706", f"`{path}` can't be read as TOML: {str(e).lower()}"))
        return
    where = f"in `{path}`"
    for key, value in document.items():
        if key not in TABLES:
            got.mistakes.append(_outside(key, value, where))
    table = document.get("run", {})
    if not isinstance(table, dict):
        got.mistakes.append(Diagnostic("AMP706", f"`run` {where} expects a table `[run]`, got `{shown(table)}`"))
        return
    for name, value in table.items():
        if name != "layer":
            got.put(name, value, where)
            continue
        tables = value.items() if isinstance(value, dict) else [("", value)]
        for layer, settings in tables:
            if not isinstance(settings, dict):
                text = f"`run.layer{'.' if layer else ''}{layer}` {where} expects a table, got `{shown(settings)}`"
                got.mistakes.append(Diagnostic("AMP706", text, help=f"settings of a layer stand in `[run.layer.{layer or 'NAME'}]`"))
            elif layer_members(layer, layers):  # the file may serve several models: a layer of another one is none of ours
                for key, v in settings.items():
                    got.put_layer(layer, key, v, where, layers)


def _outside(key: str, value: object, where: str) -> Diagnostic:
    """Return the mistake of a key or a table of a settings file that no setting is read from."""
    if not isinstance(value, dict):
        hint = f"write it below a line `[run]`: `{key} = {shown(value)}`" if key in SETTINGS else "settings stand below a line `[run]`"
        return Diagnostic("AMP706", f"`{key}` {where} stands outside of the table `[run]`", help=hint)
    if key == "layer":
        hint = f"settings of a layer stand in `[run.layer.{next(iter(value), 'NAME')}]`"
    else:
        near = did_you_mean(key, ("run",))
        hint = "did you mean `[run]`?" if near else "settings stand in `[run]`, those of a layer in `[run.layer.NAME]`"
    return Diagnostic("AMP706", f"the table `[{key}]` {where} is none that is read", help=hint)


def _take_set(got: _Collected, text: str, layers: Mapping[str, Mapping[str, Value]], model_parameters: set[str]) -> None:
    name, equals, value = text.partition("=")
    name = name.strip()
    emptied = name in SETTINGS and SETTINGS[name].kind == "str" and not SETTINGS[name].choices  # `until=` takes a condition away
    if not equals or not name or (not value.strip() and not emptied):
        got.mistakes.append(
            Diagnostic("AMP706", f"`--set {text}` expects `name=value` or `layer.name=value`", help="for instance `--set learning_rate=0.1`")
        )
        return
    layer, dot, key = name.rpartition(".")
    if dot:
        got.put_layer(layer, key, parse_value(value), "in `--set`", layers)
    elif name in model_parameters and name not in SETTINGS:
        text = f"`{name}` in `--set` is a parameter of the model and was fixed when it was compiled"
        got.mistakes.append(Diagnostic("AMP701", text, help=f"compile again with `ampc compile --set {name}={value.strip()}`"))
    else:
        s = SETTINGS.get(name)
        got.put(name, value.strip() if s is not None and s.kind == "str" else parse_value(value), "in `--set`")


def _check_together(o: RunOptions) -> None:
    mistakes = []
    if o.group_by_length and o.group == 1:
        mistakes.append(Diagnostic("AMP714", "`group_by_length` needs groups, but `group` is 1", help="give `--group` a number above 1"))
    if o.mode == "sync" and o.staleness != "plain":
        mistakes.append(
            Diagnostic("AMP714", f"`staleness` is `{o.staleness}`, but `mode` `sync` has no staleness", help="leave `staleness` at `plain`")
        )
    if o.trace_epoch and not (o.trace or o.profile):
        mistakes.append(Diagnostic("AMP714", "`trace_epoch` is set, but neither `trace` nor `profile` is", help="add `--trace` or `--profile`"))
    elif o.trace_epoch > o.epochs:
        text = f"`trace_epoch` is {o.trace_epoch}, but the run has {o.epochs} epochs"
        mistakes.append(Diagnostic("AMP714", text, help="epochs count from 1; 0 is the last"))
    if mistakes:
        together = ("group_by_length", "group", "mode", "staleness", "trace_epoch", "trace", "profile", "epochs")
        given = any(is_command(o.origins.get(name, "")) for name in together)
        raise AmpError(mistakes, exit_code=2 if given else 1)


def is_command(origin: str) -> bool:
    """Whether the origin of a setting is the command line."""
    return origin.startswith(("(`--", "in `--set`"))


# ------------------------------------------------------------------------------------------ writing them down


def to_toml(options: RunOptions, *, comments: bool = False) -> str:
    """Return the options as the `[run]` table of an `ampc.toml` that gives the same run; `comments` says where each value came from."""
    lines = ["[run]"]
    for name, s in SETTINGS.items():
        line = f"{name} = {_toml(getattr(options, name))}"
        if comments:
            line = f"{line:<34} # {options.origins.get(name, 'default').strip('()')}: {s.help}"
        lines.append(line)
    for layer, settings in options.per_layer.items():
        lines += ["", f"[run.layer.{_key(layer)}]"]
        for name, value in settings.items():
            line = f"{name} = {_toml(value)}"
            lines.append(f"{line:<34} # {options.origins.get(f'{layer}.{name}', '')}" if comments else line)
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escaped(c) for c in value) + '"'
    return repr(value)


def _escaped(c: str) -> str:
    return f"\\{c}" if c in '"\\' else c if c.isprintable() else f"\\u{ord(c):04x}"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml(name)
