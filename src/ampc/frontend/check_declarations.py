"""Checks parameters, axes, fields, layers, functions and settings: each known kind, each name once."""

from __future__ import annotations

from ampc.diagnostics import Label, Span, did_you_mean
from ampc.frontend import ast
from ampc.frontend.names import FOREIGN_LAYERS, FUNCTIONS, LAYER_SETTINGS, LAYERS, LOSSES, METRICS, SETTINGS, TYPES, Option, shown
from ampc.frontend.scopes import NOUN, Binding, Kind, Reporter, Scope, name_span, suggestion, written


class Declarations:
    """The declarations of one model. `check` returns the scope that holds them."""

    def __init__(self, model: ast.Model, out: Reporter) -> None:
        self.model = model
        self.out = out
        self.top = Scope("model")

    def check(self) -> Scope:
        for p in self.model.parameters:
            if p.default is None:
                self.out.report(
                    "AMP240", f"parameter `{p.name}` has no default", p.span, help=f"write `{p.name} = 128`; `--set {p.name}=64` changes it"
                )
            else:
                self.constant(p.default, f"the default of `{p.name}`")
            self._declare(p.name, "parameter", p.span)
        for a in self.model.axes:
            self._declare(a.name, "axis", a.span)
        for f in self.model.fields:
            self._declare(f.name, "field", f.span)
        for layer in self.model.layers:
            self._declare(layer.name, "layer", layer.span)
        for function in self.model.functions:
            self._declare(function.name, "function", function.span)
            for p in function.parameters:
                if p.default is not None:
                    self.constant(p.default, f"the default of `{p.name}`")
        self._axes()
        for f in self.model.fields:
            self._field(f)
        for layer in self.model.layers:
            self._layer(layer)
        self._settings()
        return self.top

    def _declare(self, name: str, kind: Kind, span: Span) -> None:
        before = self.top.names.get(name)
        if before is not None:
            also = (Label(before.span, f"{NOUN[before.kind]}, declared here first"),)
            self.out.report("AMP202", f"`{name}` is declared twice", span, also=also, help="choose another name")
            return
        if kind in ("layer", "function") and name in FUNCTIONS:
            self.out.report(
                "AMP203", f"`{name}` is a function of the language and can't be declared", span, FUNCTIONS[name].help, help="choose another name"
            )
        if name[0].isupper() and kind == "function":
            help_ = f"write `{name[0].lower()}{name[1:]}`"
            self.out.report("AMP203", f"a function's name begins with a small letter, not `{name}`", span, help=help_)
        self.top.names[name] = Binding(name, kind, span)

    def constant(self, e: ast.Expr, what: str) -> None:
        """Report what can't be known when compiling: everything but numbers and parameters of the model."""
        match e:
            case ast.Number() | ast.Bool():
                pass
            case ast.Name():
                found = self.top.names.get(e.id)
                if found is None and not self.out.once(e.id):
                    return
                if found is None:
                    known = [n for n, b in self.top.names.items() if b.kind == "parameter"]
                    self.out.report(
                        "AMP201", f"`{e.id}` is not declared", e.span, help=suggestion(e.id, known) or "sizes are numbers and parameters of the model"
                    )
                elif found.kind != "parameter":
                    message = f"{what} has to be known when compiling, `{e.id}` is {NOUN[found.kind]}"
                    self.out.report(
                        "AMP241", message, e.span, also=(Label(found.span, "declared here"),), help="use numbers and parameters of the model"
                    )
            case ast.Unary():
                self.constant(e.operand, what)
            case ast.Binary():
                self.constant(e.left, what)
                self.constant(e.right, what)
            case _:
                self.out.report("AMP241", f"{what} has to be known when compiling", e.span, help="use numbers and parameters of the model")

    # --------------------------------------------------------------------------------------- axes and fields

    def axis(self, name: ast.Name) -> bool:
        """Whether `name` is an axis; if not, report it."""
        found = self.top.names.get(name.id)
        if found is not None and found.kind == "axis":
            return True
        axes = [a.name for a in self.model.axes]
        if found is not None:
            message, also = f"`{name.id}` is {NOUN[found.kind]}, not an axis", (Label(found.span, "declared here"),)
            self.out.report("AMP204", message, name.span, also=also, help=_axes_help(axes))
        elif self.out.once(name.id):
            self.out.report("AMP204", f"there is no axis `{name.id}`", name.span, help=did_you_mean(name.id, axes) or _axes_help(axes))
        return False

    def _axes(self) -> None:
        parents = {a.name: a.parent for a in self.model.axes if a.parent is not None}
        for a in self.model.axes:
            if a.parent is None or not self.axis(a.parent):
                continue
            seen = [a.name]
            at = a.parent.id
            while at not in seen and at in parents:
                seen.append(at)
                at = parents[at].id
            if at == a.name and min(seen) == a.name:  # once for each ring
                text = f"axis `{a.name}` lies inside itself" if len(seen) == 1 else f"axes lie inside each other: {' in '.join([*seen, at])}"
                self.out.report("AMP207", text, a.parent.span, help="an outermost axis is declared without brackets: `axis node`")

    def _field(self, f: ast.Field) -> None:
        before = len(self.out.errors)
        self._check_field(f)
        known = f.kind.id in TYPES or self._is_axis(f.kind.id)  # what isn't may have been told of another field
        known = known and (f.axis is None or self._is_axis(f.axis.id))
        known = known and not (isinstance(f.columns, ast.Name) and f.columns.id not in self.top.names)
        if (len(self.out.errors) > before or not known) and self.top.names[f.name].span == f.span:
            self.top.names[f.name] = Binding(f.name, "broken", f.span)

    def _check_field(self, f: ast.Field) -> None:
        kind = f.kind.id
        if kind not in TYPES and not self._is_axis(kind):
            if not self.out.once(kind):
                return
            known = [*TYPES, *(a.name for a in self.model.axes)]
            help_ = did_you_mean(kind, known) or "a field is `int`, `float`, `flag` or an element of an axis"
            self.out.report(
                "AMP205",
                f"there is no type `{kind}`",
                f.kind.span,
                help={"bool": "write `flag`", "index": "write the axis it points into"}.get(kind, help_),
            )
            return
        if f.axis is not None:
            self.axis(f.axis)
        if f.columns is not None:
            if kind != "float":
                self.out.report(
                    "AMP206",
                    f"only a float has columns, `{f.name}` is of type `{kind}`",
                    f.columns.span,
                    help=f"write a field for each, or `axis column[{f.axis.id if f.axis else 'axis'}]`",
                )
            if isinstance(f.columns, ast.Name) and f.axis is None and f.columns.id not in self.top.names:
                known = [n for n, b in self.top.names.items() if b.kind in ("axis", "parameter")]
                help_ = did_you_mean(f.columns.id, known) or _axes_help([a.name for a in self.model.axes])
                if self.out.once(f.columns.id):
                    self.out.report("AMP204", f"`{f.columns.id}` is neither an axis nor a parameter", f.columns.span, help=help_)
            else:
                self.constant(f.columns, f"the width of `{f.name}`")
        if f.below is not None:
            if kind != "int":
                self.out.report("AMP206", f"only an int has a bound, `{f.name}` is of type `{kind}`", f.below.span, help="leave `< …` out")
            self.constant(f.below, f"the bound of `{f.name}`")

    def _is_axis(self, name: str) -> bool:
        found = self.top.names.get(name)
        return found is not None and found.kind == "axis"

    # ------------------------------------------------------------------------------------------------ layers

    def _layer(self, layer: ast.Layer) -> None:
        kind = layer.kind.id
        if layer.count is not None:
            self._members(layer, layer.count)
        known = LAYERS.get(kind)
        if known is None:
            self.out.report("AMP208", f"there is no layer `{kind}`", layer.kind.span, help=self._layer_help(kind))
            if self.top.names[layer.name].span == layer.span:
                self.top.names[layer.name] = Binding(layer.name, "broken", layer.span)
            return
        options = {o.name: o for o in known.options}
        if len(layer.args) != len(known.operands) and all(k.name in options for k in layer.keywords):
            wanted = ", ".join(f"`{o.name}`" for o in known.operands)
            sizes = f"{len(known.operands)} size{'s' * (len(known.operands) > 1)}"
            message = f"`{kind}` takes {sizes} ({wanted}), got {len(layer.args)}"
            self.out.report("AMP209", message, layer.kind.span, help=f"write `{layer.name} = {kind}({', '.join(o.name for o in known.operands)})`")
        for operand, value in zip(known.operands, layer.args, strict=False):
            self.constant(value, f"`{operand.name}` of `{layer.name}`")
        for k in layer.keywords:
            if k.name not in options:
                known_sizes = [o.name for o in known.operands]
                near = did_you_mean(k.name, [*options, *known_sizes])
                help_ = near or f"`{kind}({', '.join(known_sizes)})` knows {', '.join(f'`{o}`' for o in options)}"
                self.out.report("AMP210", f"`{kind}` has no option `{k.name}`", name_span(k), help=help_)
            else:
                self._option(options[k.name], k.value, f"option `{k.name}` of `{layer.name}`")

    def _members(self, layer: ast.Layer, count: ast.Expr) -> None:
        """Check the size of a family."""
        what = f"the size of family `{layer.name}`"
        if isinstance(count, ast.Call) and count.function.id == "range" and len(count.args) == 1:
            index = layer.index.id if layer.index is not None else "k"
            help_ = f"write `for {index} in {written(count.args[0])}`: the size stands alone"
            self.out.report("AMP241", f"{what} is a number, not a range", count.span, help=help_)
        else:
            self.constant(count, what)

    def _layer_help(self, kind: str) -> str:
        plain = f"layers are {', '.join(f'`{x}`' for x in LAYERS)}"
        if kind in FOREIGN_LAYERS:
            meant = FOREIGN_LAYERS[kind]
            if kind == "Dropout":
                return "write `dropout(x, rate)` where it acts"
            return f"write `{meant}`" if meant else f"write it as a `def` over `Linear` layers; {plain}"
        if kind in ("True", "False", "None"):
            return plain
        names = [x.name for x in self.model.layers] + [f.name for f in self.model.functions]
        applied = next((name for name in names if name.casefold() == kind.casefold()), None)
        if applied is None and kind.lower() in FUNCTIONS:
            applied = kind.lower()
        if applied is not None and kind not in LAYERS:
            return f"did you mean `{applied}`? Capital and small letters differ"
        return did_you_mean(kind, LAYERS) or plain

    def _option(self, option: Option, value: ast.Expr, what: str) -> None:
        """Report an option's value that is of another kind than it takes."""
        match option.what:
            case "flag":
                if not isinstance(value, ast.Bool) and not self._is_parameter(value):
                    help_ = suggestion(value.id, ["true", "false"]) if isinstance(value, ast.Name) else None
                    self.out.report("AMP211", f"{what} is `true` or `false`", value.span, help=help_)
            case "word":
                word = value.id if isinstance(value, ast.Name) else value.value if isinstance(value, ast.Text) else None
                if word is None:
                    self.out.report("AMP211", f"{what} is a word", value.span, help=_choices(option.choices))
                elif option.choices and word not in option.choices:
                    help_ = did_you_mean(word, option.choices) or _choices(option.choices)
                    self.out.report("AMP211", f"{what} can't be `{word}`", value.span, help=help_)
            case _:
                self.constant(value, what)

    def _is_parameter(self, e: ast.Expr) -> bool:
        found = self.top.names.get(e.id) if isinstance(e, ast.Name) else None
        return found is not None and found.kind == "parameter"

    # ---------------------------------------------------------------------------------------------- settings

    def _settings(self) -> None:
        seen: dict[tuple[str, str], Span] = {}
        layers = [x.name for x in self.model.layers]
        for s in self.model.settings:
            key = (s.layer.id if s.layer else "", s.name)
            full = f"{s.layer.id}.{s.name}" if s.layer else s.name
            if key in seen:
                self.out.report("AMP234", f"`{full}` is set twice", s.span, also=(Label(seen[key], "first here"),), help="remove one")
            seen[key] = s.span
            if s.layer is not None and s.layer.id not in layers:
                help_ = did_you_mean(s.layer.id, layers) or f"the layers are {', '.join(f'`{x}`' for x in layers)}"
                self.out.report("AMP232", f"there is no layer `{s.layer.id}`", s.layer.span, help=help_)
            elif s.name not in SETTINGS or (s.layer is not None and s.name not in LAYER_SETTINGS):
                self._unknown_setting(s)
            else:
                self._setting_value(s, full)

    def _unknown_setting(self, s: ast.Setting) -> None:
        known = LAYER_SETTINGS if s.layer is not None else tuple(SETTINGS)
        if s.layer is not None and s.name in SETTINGS:
            help_ = f"write `{s.name} = …`; a layer may set {', '.join(f'`{x}`' for x in LAYER_SETTINGS)}"
            self.out.report("AMP232", f"`{s.name}` is a setting of the whole run, not of a layer", s.span, help=help_)
            return
        aliases = {
            "lr": "learning_rate",
            "batch_size": "min_update_frequency",
            "mak": "max_active_keys",
            "muf": "min_update_frequency",
            "wd": "weight_decay",
        }
        near = f"write `{aliases[s.name]}`" if s.name in aliases else did_you_mean(s.name, known)
        self.out.report("AMP232", f"there is no setting `{s.name}`", s.span, help=near or "`ampc run --help` lists the settings")

    def _setting_value(self, s: ast.Setting, full: str) -> None:
        setting = SETTINGS[s.name]
        value = s.value
        if setting.what in ("int", "float"):
            if isinstance(value, ast.Bool | ast.Text):
                noun = "an integer" if setting.what == "int" else "a number"
                self.out.report("AMP233", f"`{full}` is {noun}, got `{shown(value.value)}`", value.span)
            elif isinstance(value, ast.Number) and setting.what == "int" and isinstance(value.value, float):
                self.out.report("AMP233", f"`{full}` is an integer, got `{value.value}`", value.span)
            else:
                self.constant(value, f"`{full}`")
            return
        if setting.what == "flag":
            self._setting_flag(full, value)
            return
        word = value.id if isinstance(value, ast.Name) else value.value if isinstance(value, ast.Text) else None
        if word is None:
            self.out.report("AMP233", f"`{full}` is a word", value.span, help=_choices(setting.choices))
        elif setting.choices and word not in setting.choices:
            help_ = did_you_mean(word, setting.choices) or _choices(setting.choices)
            self.out.report("AMP233", f"`{full}` can't be `{word}`", value.span, help=help_)

    def _setting_flag(self, full: str, value: ast.Expr) -> None:
        if isinstance(value, ast.Bool) or self._is_parameter(value):
            return
        help_ = suggestion(value.id, ["true", "false"]) if isinstance(value, ast.Name) else None
        self.out.report("AMP233", f"`{full}` is `true` or `false`", value.span, help=help_)


def _axes_help(axes: list[str]) -> str:
    return f"the axes are {', '.join(f'`{a}`' for a in axes)}" if axes else "declare it in the `instance:` block: `axis token`"


def _choices(choices: tuple[str, ...]) -> str | None:
    return f"one of {', '.join(f'`{c}`' for c in choices)}" if choices else None


__all__ = ["LOSSES", "METRICS", "Declarations"]
