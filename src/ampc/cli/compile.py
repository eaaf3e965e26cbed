"""`ampc compile`: a model becomes a folder with manifest, kernels, picture and reports; `--emit` prints a stage instead."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampc.cli.errors import OUTPUT, note
from ampc.diagnostics import AmpError, error, printable

if TYPE_CHECKING:
    from ampc.compiler import Compilation, FactorsOf
    from ampc.ir.graph import Graph
    from ampc.manifest import Manifest
    from ampc.place import Statistics, Target
    from ampc.place.factors import Factors
    from ampc.runtime.kernels import Loaded


class Emit(StrEnum):
    ast = "ast"
    ir = "ir"
    placement = "placement"
    kernels = "kernels"
    manifest = "manifest"


OF_OPTIONS = ("AMP250", "AMP251", "AMP401", "AMP506", "AMP510", "AMP514", "AMP516")
"""Mistakes in the values of `--set`, `--disable-pass`, `--precision`, `--strategy`, `--at`, `--split`, `--replicas`: the command is wrong."""
SPREAD = 0.75
"""Mean over the busiest core below which cores are called idle."""

Stage = StrEnum("Stage", ["parse", "check", "lower", "passes", "place"])


Model = Annotated[str, typer.Argument(metavar="MODEL", help="A `.amp` file, `-` for standard input, or the name of a bundled model.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter of the model, such as `hidden=64`. Repeatable.")
]
TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="NAME|FILE", help="Hardware: a bundled target or a `.toml` file. Default: this machine's cores.")
]
StrategyOption = Annotated[str, typer.Option("--strategy", metavar="NAME", help="Placement: balanced, round_robin or manual.")]
AtOption = Annotated[list[str] | None, typer.Option("--at", metavar="LAYER=DEVICE", help="Put a layer on a device. Repeatable.")]
SplitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--split", metavar="auto[:N]|LAYER=N", help="Split Linears by columns: those that are the bottleneck into at most N parts, or LAYER into N.",
    ),
]
ReplicasOption = Annotated[
    list[str] | None,
    typer.Option(
        "--replicas", metavar="auto[:N]|LAYER=N", help="Replicate layers: those that are the bottleneck into at most N copies, or LAYER into N.",
    ),
]
class Precision(StrEnum):
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


PrecisionOption = Annotated[
    Precision | None,
    typer.Option("--precision", help="Of matrix products: which rates of the target hold. Default: the program's setting, if the target has it."),
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="RUN_DIR", help="Nodes cost what the profile of an earlier run of this program measured.")
]
DisableOption = Annotated[
    list[str] | None, typer.Option("--disable-pass", metavar="NAME", help="Leave a pass out (`ampc passes` lists them). Repeatable.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("compile", epilog="Example: ampc compile models/list_reduction.amp --set hidden=64 --target cpu-2")(compile_command)


def compile_command(
    model: Model,
    out: Annotated[str | None, typer.Option("-o", "--output", metavar="DIR", help="Folder to write. Default: the model's name with `.ampx`.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model there that was compiled from another file.")] = False,
    target: TargetOption = None,
    sets: SetOption = None,
    strategy: StrategyOption = "balanced",
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Data whose lengths and values the cost estimate is made from.")] = None,
    disable: DisableOption = None,
    at: AtOption = None,
    split: SplitOption = None,
    replicas: ReplicasOption = None,
    profile: ProfileOption = None,
    emit: Annotated[Emit | None, typer.Option("--emit", help="Print a stage and write nothing.")] = None,
    stop_after: Annotated[Stage | None, typer.Option("--stop-after", help="Compile no further than this stage; writes nothing.")] = None,
    dump_passes: Annotated[str | None, typer.Option(metavar="DIR", help="Write the graph after lowering and after each pass.")] = None,
    kernels: Annotated[bool, typer.Option("--kernels", help="Compile the kernels too: the first run then begins at once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Compile a model: check it, build its dataflow graph, place it on devices, write a manifest."""
    from ampc import artefact
    from ampc.cli import steps
    from ampc.manifest import write_atomic

    enough = {Emit.ast: "parse", Emit.ir: "passes"}.get(emit, "place") if emit is not None else "place"
    wanted = stop_after.value if stop_after is not None else enough
    _check_reach(emit, wanted)
    if kernels and (emit is not None or wanted != "place"):
        raise error("AMP903", "`--kernels` needs the whole compilation", help="leave `--emit` and `--stop-after` out", exit_code=2)
    done = compile_model(
        model, target=target, sets=sets, strategy=strategy, data=data, disable=disable, stop_after=wanted, at=at, split=split, replicas=replicas,
        profile=profile,
    )  # fmt: skip
    if dump_passes is not None:
        _dump(done, Path(dump_passes))
    if emit is not None:
        print(emitted(done, emit.value, as_json), end="")
        return
    if wanted != "place" or done.manifest is None:
        if OUTPUT.verbose:
            note("\n".join(steps.table(done, detail=True)))
        note(f"{done.source.name}: stopped after `{wanted}`, no mistakes")
        return
    folder = artefact.write(done, out, force=force)
    loaded = _warm(done) if kernels else None
    found = steps.report(done, loaded)
    write_atomic(folder / steps.FILE, (json.dumps(found, indent=1) + "\n").encode())
    print(_summary_json(done, folder, found) if as_json else printable(str(folder)) if OUTPUT.quiet else _summary(done, folder, loaded))


def compile_model(
    model: str, *, target: str | None = None, sets: list[str] | None = None, strategy: str = "balanced", data: str | None = None,
    disable: list[str] | None = None, stop_after: str = "place", at: list[str] | None = None, split: list[str] | None = None,
    replicas: list[str] | None = None, profile: str | None = None,
) -> Compilation:
    """Compile as the command line asks; other verbs share it."""
    from ampc import place
    from ampc.compiler import compile_source
    from ampc.source import read_source

    overrides = parse_sets(sets or [])
    where, (parts, columns), (copies, dealt) = parse_at(at or []), parse_changes("--split", split), parse_changes("--replicas", replicas)
    factors = factors_from(profile, bool(split or replicas))
    hardware = (place.load_target(target) if target is not None else place.this_machine()) if stop_after == "place" else None
    with wrong_options():
        return compile_source(
            read_source(model), target=hardware, overrides=overrides, strategy=strategy, statistics=statistics_from(data), disable=disable or (),
            stop_after=stop_after, at=where, parts=parts, copies=copies, columns=columns, replicas=dealt, factors=factors,
        )


@contextlib.contextmanager
def wrong_options() -> Iterator[None]:
    """Within it, errors that are of the values of options have the exit code of a wrong command."""
    try:
        yield
    except AmpError as e:
        if all(d.code in OF_OPTIONS for d in e.diagnostics):
            raise AmpError(e.diagnostics, exit_code=2) from None
        raise


def statistics_from(data: str | None) -> Callable[[Graph], Statistics]:
    """Return how the cost model learns of the data: from the training split of `data`, or by guessing."""
    from ampc import place

    if data is None:
        return place.guess

    def measured(graph: Graph) -> Statistics:
        from ampc.data import find, read

        return place.measure(graph, read(find(data)["train"], graph))

    return measured


def factors_from(profile: str | None, changes: bool) -> FactorsOf | None:
    """Return how costs are refined by the profile in a run folder; `changes`: whether the graph may become another one, which it is not of."""
    if profile is None:
        return None
    if changes:
        message = "`--profile` is of the program as it was run; `--split` and `--replicas` make another one of it"
        raise error("AMP903", message, help="leave one of them out", exit_code=2)
    from ampc.codegen.plan import make_plan
    from ampc.runtime import profile as profiles

    found = profiles.read(profile)

    def refined(graph: Graph, statistics: Statistics, target: Target) -> Factors:
        return profiles.factors(found, make_plan(graph, dict.fromkeys(graph.by_id, 0)), statistics, target)

    return refined


def parse_sets(sets: list[str]) -> dict[str, int | float | bool]:
    """Return `NAME=VALUE` texts as values; raises AmpError AMP902."""
    out: dict[str, int | float | bool] = {}
    for text in sets:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise error("AMP902", f"`--set {printable(text)}` expects `NAME=VALUE`", help="for instance `--set hidden=64`", exit_code=2)
        if name in out:
            raise error("AMP902", f"`--set` gives `{name}` twice", exit_code=2)
        out[name] = _value(name, value)
    return out


def parse_at(texts: list[str]) -> dict[str, str]:
    """Return `LAYER=DEVICE` texts as layer -> device; raises AmpError AMP902. A device's name may hold any characters."""
    out: dict[str, str] = {}
    for text in texts:
        layer, equals, device = text.partition("=")
        if not equals or not layer.strip() or not device:
            raise error("AMP902", f"`--at {printable(text)}` expects `LAYER=DEVICE`", help="for instance `--at head=core:1`", exit_code=2)
        if layer.strip() in out:
            raise error("AMP902", f"`--at` gives `{printable(layer.strip())}` twice", exit_code=2)
        out[layer.strip()] = device
    return out


def parse_changes(option: str, texts: list[str] | None) -> tuple[int, dict[str, int]]:
    """Return (the most parts or copies that `auto` (16) or `auto:N` allow, 1 without it; `LAYER=N` as layer -> parts or copies).

    Raises AmpError AMP902.
    """
    most, given = 1, dict[str, int]()
    for text in texts or []:
        layer, equals, number = text.partition("=")
        word, colon, limit = text.partition(":")
        count = number if equals else limit if colon else "16"
        n = int(count) if count.isdecimal() and len(count) < 5 else 0
        if (not layer.strip() if equals else word != "auto") or not 2 <= n <= 1024:
            remedy = f"for instance `{option} auto:4`, or `{option} step=2` for one layer"
            raise error(
                "AMP902", f"`{option} {printable(text)}` expects `auto`, `auto:N` or `LAYER=N` with N from 2 to 1024", help=remedy, exit_code=2
            )  # fmt: skip
        if layer.strip() in given if equals else most > 1:
            raise error("AMP902", f"`{option}` gives `{printable(layer.strip()) if equals else 'auto'}` twice", exit_code=2)
        if equals:
            given[layer.strip()] = n
        else:
            most = n
    return most, given


def _value(name: str, text: str) -> int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if value == value and abs(value) <= 2**53:
            return value
    raise error("AMP902", f"`--set {name}=` expects a number, `true` or `false`, got `{printable(text)}`", exit_code=2)


def _check_reach(emit: Emit | None, stop_after: str) -> None:
    needs = {None: "parse", Emit.ast: "parse", Emit.ir: "lower"}.get(emit, "place")
    order = [s.value for s in Stage]
    if order.index(stop_after) < order.index(needs):
        assert emit is not None
        remedy = f"leave `--stop-after` out, or stop after `{needs}`"
        message = f"`--emit {emit.value}` needs stage `{needs}`, but `--stop-after {stop_after}` ends before it"
        raise error("AMP903", message, help=remedy, exit_code=2)


def emitted(done: Compilation, what: str, as_json: bool = False) -> str:
    """Return a stage as text."""
    match what:
        case "ast":
            from ampc.cli.tree import tree

            return tree(done.model)
        case "ir":
            from ampc.ir import to_text

            assert done.graph is not None
            return to_text(done.graph)
    assert done.manifest is not None
    match what:
        case "placement":
            from ampc.artefact import placement_report

            report = placement_report(done.manifest.placement, done.manifest)
            return json.dumps(report, indent=1) + "\n" if as_json else placement_table(done)
        case "manifest":
            from ampc.manifest import to_bytes

            return to_bytes(done.manifest).decode()
        case _:
            from ampc.codegen import kernel_text

            return kernel_text(done.manifest.graph, done.manifest.placement)


def placement_table(done: Compilation) -> str:
    """Return the placement for people: a line for each device and for the busiest links, one for the prediction."""
    from ampc.artefact import placement_report

    assert done.manifest is not None
    return placement_text(placement_report(done.manifest.placement, done.manifest))


MOST_LINKS = 4
MOST_DEVICES = 64
FEW_DEVICES = 16
"""So many are all listed; of more those that have something to do."""


def placement_text(report: dict[str, Any]) -> str:
    """Return a report of a placement as lines."""
    most = 1 / report["predicted_instances_per_s"] if report["predicted_instances_per_s"] else 1.0
    used = [d for d in report["devices"] if d["nodes"]]
    shown = (report["devices"] if len(report["devices"]) <= FEW_DEVICES else used)[:MOST_DEVICES]
    width = max((len(printable(d["name"])) for d in shown), default=0)
    lines = [
        f"{printable(d['name']):{width}}  {100 * d['busy_s'] / most:4.0f} % busy  {1e6 * d['busy_s']:11.3f} µs an instance  "
        f"{d['memory_bytes']:>12,} bytes  {len(d['nodes']):4} nodes  {', '.join(d['layers']) or '-'}"
        for d in shown
    ]
    if len(shown) < len(report["devices"]):
        idle = len(report["devices"]) - len(used)
        parts = [f"{len(used) - len(shown)} more devices"] * (len(shown) < len(used)) + [f"{idle} that have nothing to do"] * (idle > 0)
        lines.append(f"... and {' and '.join(parts)}")
    lines += [
        f"link {printable(x['name'])}  {100 * x['busy_s'] / most:4.0f} % busy  {x['bytes']:,.0f} bytes in {x['messages']:,.1f} messages an instance"
        for x in report["links"][:MOST_LINKS]
    ]
    if len(report["links"]) > MOST_LINKS:
        lines.append(f"... and {len(report['links']) - MOST_LINKS} links that are less busy")
    lines.append(
        f"predicted {report['predicted_instances_per_s']:,.0f} instances/s on {printable(report['target'])} ({report['strategy']}"
        + _rates(report) + "), "
        f"bottleneck {printable(report['bottleneck'])}, {report['crossing_messages']:.1f} messages between devices an instance, "
        f"at most {100 * report['gap']:.1f} % from the best"
    )
    if "loaded_instances_per_s" in report:
        lines.append(f"simulated {report['loaded_instances_per_s']:,.0f} instances/s with {report['in_flight']:,} in flight")
    return "\n".join(lines) + "\n"


def _rates(report: dict[str, Any]) -> str:
    """Return which rates an estimate takes, where that is not a matter of course."""
    if report["missing_rate"]:
        return f", {report['precision']} rates: the target states none for {report['missing_rate']}"
    return f", {report['precision']}" if report["precision"] != "fp32" else ""


def _dump(done: Compilation, folder: Path) -> None:
    """Write `00-lower.ir`, `01-fuse.ir`, ...: the graph after each step."""
    from ampc.ir import to_text
    from ampc.manifest import write_atomic

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise error("AMP921", f"`{printable(str(folder))}` cannot be written: {(e.strerror or str(e)).lower()}", exit_code=4) from None
    for i, (name, graph) in enumerate(done.graphs.items()):
        write_atomic(folder / f"{i:02}-{name.replace('#', '-')}.ir", to_text(graph).encode())
    note(f"{len(done.graphs)} graphs in {folder}")


def _summary(done: Compilation, folder: Path, loaded: Loaded | None) -> str:
    from ampc.cli import steps

    assert done.manifest is not None
    m = done.manifest
    parameters = sum(x.parameters for x in _layer_costs(done).values())
    lines = [f"compiled {m.name}: {len(m.graph.nodes)} nodes, {len(m.graph.layers)} layers, {parameters:,} parameters"]
    lines += ["  " + line for line in steps.table(done, loaded, detail=OUTPUT.verbose)]
    lines += ["  " + line for line in placement_table(done).splitlines()]
    if _idle(m):
        lines.append("  help      cores are idle: `--replicas auto` deals instances among copies of the layers, where that is predicted to pay")
    lines.append("  " + _memory_line(_memory(folder)))
    for what, name in (("manifest", "manifest.json"), ("kernels", "kernels.py"), ("picture", "graph.svg"), ("reports", "report")):
        if (folder / name).exists():
            lines.append(f"  {what:9} {printable(str(folder / name))}")
    return "\n".join(lines)


def _idle(m: Manifest) -> bool:
    """Return whether cores have little to do, and copies of layers are a way to give them more."""
    from ampc.ir.copies import copy_number

    busy = m.placement.busy_s
    idle = sum(busy) < SPREAD * len(busy) * max(busy, default=0.0)
    return idle and all(d.kind == "cpu" for d in m.target.devices) and not any(copy_number(x.name) is not None for x in m.graph.layers)


def _warm(done: Compilation) -> Loaded:
    """Compile the kernels of a run with the program's own settings into the cache."""
    from ampc.runtime import cache
    from ampc.runtime.program import Program

    assert done.manifest is not None
    loaded = Program(done.manifest).compile_kernels()
    note(f"kernels ready in {loaded.seconds:.1f} s, kept in {printable(str(cache.folder()))}")
    return loaded


def _memory(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report/memory.json").read_text())
    return found


def _memory_line(m: dict[str, Any]) -> str:
    basis = "the data" if m["statistics"] == "data" else "guessed lengths"
    return (
        f"an instance in flight takes {m['instance_bytes']:,} bytes (mean of {basis}), the largest {m['largest_bytes']:,}; "
        f"{m['number']:,} take {m['in_flight_bytes']:,}"
    )


def _summary_json(done: Compilation, folder: Path, found: dict[str, Any]) -> str:
    from ampc.artefact import placement_report

    assert done.manifest is not None
    m = done.manifest
    return json.dumps({
        "model": m.name, "folder": str(folder), "manifest": str(folder / "manifest.json"), "digest": m.digest(), "nodes": len(m.graph.nodes),
        "layers": len(m.graph.layers), "parameters": sum(x.parameters for x in _layer_costs(done).values()),
        "placement": placement_report(m.placement, m), "memory": _memory(folder), **found,
    }, indent=1)


def _layer_costs(done: Compilation) -> dict[str, LayerCost]:
    from ampc.place import estimate

    assert done.manifest is not None
    return estimate(done.manifest.graph, done.manifest.statistics).layers


if TYPE_CHECKING:
    from ampc.place import LayerCost

__all__ = [
    "compile_model", "emitted", "factors_from", "parse_at", "parse_changes", "parse_sets", "placement_table", "placement_text",
    "register", "statistics_from", "wrong_options",
]
