"""The declarative half of a program: parameters, axes, fields, layers, `train:` settings.

Every mistake is recorded in the `Lowering`; what can't be told is left out, so that the statements are still looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ampc.diagnostics import Diagnostic, Label, Span, did_you_mean
from ampc.frontend import ast
from ampc.frontend.names import INITS, LAYERS, SETTINGS, shown
from ampc.ir.graph import AxisDecl, FieldDecl, Layer, Param
from ampc.ir.nodes import Attr
from ampc.lower.constants import ConstantError, Number, bounded, evaluate
from ampc.lower.context import LayerInfo, Lowering
from ampc.lower.values import Const, Symbol

MOST_MEMBERS = 10_000
MOST_SIZE = 2**31 - 1
LAYER_SETTINGS = tuple(s.name for s in SETTINGS.values() if s.per_layer)
SIGNATURES = {name: tuple(o.name for o in layer.operands) for name, layer in LAYERS.items()}
OPTIONS = {name: tuple(o.name for o in layer.options) for name, layer in LAYERS.items()}


def parameters(model: ast.Model, overrides: Mapping[str, Number]) -> tuple[dict[str, Const], list[Diagnostic]]:
    """Return the model's parameters with their values, and the mistakes."""
    out: dict[str, Const] = {}
    wrong: list[Diagnostic] = []
    known = [p.name for p in model.parameters]
    for name in overrides:
        if name not in known:
            takes = (
                f"model `{model.name}` has the parameters {', '.join(f'`{k}`' for k in known)}"
                if known
                else f"model `{model.name}` has no parameters"
            )
            wrong.append(Diagnostic("AMP250", f"unknown model parameter `{name}`", help=did_you_mean(name, known) or takes))
    for p in model.parameters:
        try:
            default = None if p.default is None else evaluate(p.default, out)
        except ConstantError as problem:
            wrong.append(Diagnostic("AMP253", f"default of parameter `{p.name}`: {problem}", Label(p.span)))
            default = Const(1, p.span)
        if not isinstance(default, Const):
            wrong.append(Diagnostic("AMP252", f"parameter `{p.name}` needs a constant default", Label(p.span), help=f"write `{p.name} = 128`"))
            default = Const(1, p.span)
        out[p.name] = default
        if p.name in overrides:
            value, refused = _overridden(p.name, default.value, overrides[p.name])
            out[p.name] = Const(value, p.span)
            if refused:
                wrong.append(Diagnostic("AMP251", refused, Label(p.span, f"the default is `{shown(default.value)}`")))
    return out, wrong


def _overridden(name: str, default: Number, given: Number) -> tuple[Number, str]:
    """Return the value to use and what is wrong with the given one ("" if nothing)."""
    kind = {bool: "`true` or `false`", int: "an integer", float: "a number"}[type(default)]
    wrong = f"parameter `{name}` is {kind}, got `{shown(given)}`"
    if isinstance(default, bool) or isinstance(given, bool):
        return (given, "") if isinstance(default, bool) and isinstance(given, bool) else (default, wrong)
    if isinstance(default, int):
        return (int(given), "") if float(given).is_integer() and abs(given) <= 2**53 else (default, wrong)
    try:
        return float(bounded(given)), ""
    except ConstantError:
        return default, wrong


def axes(model: ast.Model) -> dict[str, AxisDecl]:
    """Return the axes, each after the one that it is nested in."""
    found = {a.name: AxisDecl(a.name, a.parent.id if a.parent else "") for a in model.axes}
    out: dict[str, AxisDecl] = {}
    for _ in found:  # one level of nesting a round
        out |= {name: a for name, a in found.items() if name not in out and (not a.parent or a.parent in out)}
    return out | found


class Declarations:
    """Evaluates what needs the parameters: field sizes, layers, settings."""

    def __init__(self, low: Lowering) -> None:
        self.low = low

    def constant(self, e: ast.Expr, what: str) -> Const | Symbol | None:
        """Return the value of `e`, or None after recording why it has none."""
        try:
            value = evaluate(e, self.low.constants)
        except ConstantError as problem:
            self.low.report("AMP253", f"{what}: {problem}", e.span)
            return None
        if value is None:
            self.low.report(
                "AMP252", f"{what} has to be a constant", e.span, "not known at compile time", help="use numbers and model parameters only"
            )
        return value

    def integer(self, e: ast.Expr, what: str, low: int = 1, high: int = MOST_SIZE) -> int | None:
        """Return the value of `e` as an integer within bounds, or None after recording a mistake."""
        value = self.constant(e, what)
        if value is None:
            return None
        if isinstance(value, Symbol):
            self.low.report(
                "AMP252", f"{what} has to be a constant, `{value.name}` is none", e.span, help=self.low.suggest(value.name, self.low.constants)
            )
            return None
        n = value.value
        if isinstance(n, bool) or not float(n).is_integer():
            self.low.report(
                "AMP254", f"{what} has to be an integer, got `{shown(n)}`", e.span, help="`//` divides integers" if isinstance(n, float) else None
            )
            return None
        if not low <= n <= high:
            self.low.report("AMP254", f"{what} has to be within {low} and {high}, got {int(n)}", e.span)
            return None
        return int(n)

    def fields(self) -> dict[str, FieldDecl]:
        out = {}
        for f in self.low.model.fields:
            axis = f.axis.id if f.axis else ""
            kind = f.kind.id if f.kind.id in ("int", "float", "flag") else "index"
            columns = self.integer(f.columns, f"the width of field `{f.name}`") if f.columns else 1
            below = self.integer(f.below, f"the bound of field `{f.name}`") if f.below else 0
            out[f.name] = FieldDecl(f.name, kind, axis, columns or 1, below or 0, f.kind.id if kind == "index" else "", f.optional)  # type: ignore[arg-type]  # kind is one of the four
        return out

    def layers(self) -> tuple[dict[str, LayerInfo], dict[str, Layer]]:
        """Return what applies each declared layer, and the arrays of each layer and family member."""
        infos: dict[str, LayerInfo] = {}
        arrays: dict[str, Layer] = {}
        settings = self._layer_settings()
        for decl in self.low.model.layers:
            members = self.integer(decl.count, f"the size of family `{decl.name}`", 1, MOST_MEMBERS) if decl.count else None
            made = self._layer(decl)
            if made is None:
                continue
            info, one = made
            infos[decl.name] = LayerInfo(decl, info.op, members, info.inputs, info.attrs)
            own = settings.get(decl.name, {})
            if members is None:
                arrays[decl.name] = msgspec.structs.replace(one, settings=own)
            else:
                arrays |= {f"{decl.name}.{i}": msgspec.structs.replace(one, name=f"{decl.name}.{i}", settings=own) for i in range(members)}
        return infos, arrays

    def _layer(self, decl: ast.Layer) -> tuple[LayerInfo, Layer] | None:
        kind = decl.kind.id
        if kind not in SIGNATURES:
            self.low.report(
                "AMP255", f"`{kind}` is no layer", decl.kind.span, help=self.low.suggest(kind, SIGNATURES) or f"layers are {', '.join(SIGNATURES)}"
            )
            return None
        sizes = self._sizes(decl)
        options = self._options(decl, sizes)
        if sizes is None:
            return None
        scale = options.get("scale", 1.0)
        assert isinstance(scale, int | float)
        attrs: dict[str, Attr] = {}
        if kind == "Linear":
            op, form, init = "linear", "linear", str(options.get("init", "glorot"))
            params: tuple[Param, ...] = (Param("w", (sizes[0], sizes[1]), init, float(scale)),)
            if options.get("bias", True):
                params += (Param("b", (sizes[1],), "zeros"),)
        elif kind == "Embedding":
            op, form = "lookup", "embedding"
            params = (Param("table", (sizes[0], sizes[1]), str(options.get("init", "normal")), float(options.get("scale", 0.1))),)
        else:
            op, form = "layer_norm", "layer_norm"
            params = (Param("gain", (sizes[0],), "ones"), Param("bias", (sizes[0],), "zeros"))
            attrs = {"eps": float(options.get("epsilon", 1e-5))}
        replicas, device = options.get("replicas", 1), options.get("device", "")
        columns, rows = options.get("columns", 1), options.get("rows", 1)
        assert isinstance(replicas, int) and isinstance(columns, int) and isinstance(rows, int)
        if columns > 1 < rows:
            self.low.report("AMP255", f"`{decl.name}` is split by `columns` and by `rows`, but only one is possible", decl.span, help="leave one out")
            return None
        return LayerInfo(decl, op, None, sizes[0], attrs), Layer(decl.name, form, params, replicas, {}, str(device), columns, rows)

    def _sizes(self, decl: ast.Layer) -> tuple[int, ...] | None:
        kind = decl.kind.id
        wanted = SIGNATURES[kind]
        given = [(f"`{wanted[i]}`" if i < len(wanted) else "", a) for i, a in enumerate(decl.args)]
        if len(given) != len(wanted):
            usage = f"{kind}({', '.join(wanted)})"
            self.low.report(
                "AMP255", f"`{kind}` takes {len(wanted)} size{'s' * (len(wanted) > 1)}, got {len(given)}", decl.span, help=f"write `{usage}`"
            )
            return None
        sizes = [self.integer(a, f"{name} of `{decl.name}`") for name, a in given]
        return None if None in sizes else tuple(s for s in sizes if s is not None)

    def _options(self, decl: ast.Layer, sizes: tuple[int, ...] | None) -> dict[str, Number | str]:
        kind, out = decl.kind.id, dict[str, Number | str]()
        for k in decl.keywords:
            if k.name not in OPTIONS[kind]:
                known = f"`{kind}` knows {', '.join(f'`{o}`' for o in OPTIONS[kind])}"
                self.low.report("AMP255", f"`{kind}` has no option `{k.name}`", k.span, help=self.low.suggest(k.name, OPTIONS[kind]) or known)
                continue
            if k.name == "replicas":
                count = self.integer(k.value, f"`replicas` of `{decl.name}`", 1, 1024)
                out |= {} if count is None else {"replicas": count}
                continue
            if k.name in ("columns", "rows"):
                most = sizes[k.name == "columns"] if sizes else MOST_SIZE
                count = self.integer(k.value, f"`{k.name}` of `{decl.name}`", 1, min(most, 4096))
                out |= {} if count is None else {k.name: count}
                continue
            value = self.constant(k.value, f"option `{k.name}` of `{decl.name}`")
            if value is not None and (problem := self._option(k.name, value)):
                self.low.report("AMP255", f"option `{k.name}` of `{decl.name}` {problem}", k.value.span)
            elif value is not None:
                out[k.name] = value.name if isinstance(value, Symbol) else value.value
        return out

    def _option(self, name: str, value: Const | Symbol) -> str:
        """Return what is wrong with the value of an option ("" if nothing)."""
        got = value.name if isinstance(value, Symbol) else shown(value.value)
        if name == "bias":
            return "" if isinstance(value, Const) and isinstance(value.value, bool) else f"is `true` or `false`, got `{got}`"
        if name == "init":
            near = f"; {did_you_mean(got, INITS)}" if did_you_mean(got, INITS) else ""
            return "" if got in INITS else f"is one of {', '.join(INITS)}, got `{got}`{near}"
        if name in ("scale", "epsilon"):
            good = isinstance(value, Const) and not isinstance(value.value, bool) and value.value > 0
            return "" if good else f"is a positive number, got `{got}`"
        return ""

    def _layer_settings(self) -> dict[str, dict[str, int | float | str | bool]]:
        out: dict[str, dict[str, int | float | str | bool]] = {}
        known = {x.name for x in self.low.model.layers}
        for s in self.low.model.settings:
            if s.layer is None:
                continue
            if s.layer.id not in known:
                self.low.report("AMP256", f"no layer `{s.layer.id}`", s.layer.span, help=self.low.suggest(s.layer.id, known))
            elif s.name not in LAYER_SETTINGS:
                help = self.low.suggest(s.name, LAYER_SETTINGS) or f"a layer may set {', '.join(f'`{x}`' for x in LAYER_SETTINGS)}"
                self.low.report("AMP256", f"a layer has no setting `{s.name}` of its own", s.span, help=help)
            elif (value := self.constant(s.value, f"setting `{s.name}`")) is not None:
                out.setdefault(s.layer.id, {})[s.name] = value.name if isinstance(value, Symbol) else value.value
        return out

    def train(self) -> dict[str, int | float | str | bool]:
        """Return the defaults of the `train:` block (what they mean is the runtime's)."""
        out: dict[str, int | float | str | bool] = {}
        seen: dict[str, Span] = {}
        for s in self.low.model.settings:
            if s.layer is not None:
                continue
            if s.name in seen:
                self.low.report("AMP256", f"setting `{s.name}` is given twice", s.span, "again here", also=[Label(seen[s.name], "first here")])
            seen[s.name] = s.span
            value = self.constant(s.value, f"setting `{s.name}`")
            if value is not None:
                out[s.name] = value.name if isinstance(value, Symbol) else value.value
        return out
