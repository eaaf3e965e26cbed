"""Weights in and out: safetensors files with exact names and shapes, pre-trained layers, and PyTorch state dicts by a name map.

A tensor is called `layer.parameter` (`step.w`, `embed.table`, `message.2.b`); copies of a replicated layer are `step~0.w`, ..., but on PyTorch's
side there is only their mean, `step.w`. A file fits whatever copies it has (`spread`). Nothing is loaded in part unless that was asked for, and
then what was left out is returned. No pickle is read: a `.pt` file has to be saved as safetensors first.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, write_remedy
from ampc.ir.copies import copy_name, copy_number, names_of, part_number, plain_name, uncopied, undivided
from ampc.ir.graph import Graph

Arrays = dict[str, npt.NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]
HEADER_LIMIT = 100_000_000
MOST_NOTES = 12
TORCH_NAMES = {"w": "weight", "b": "bias", "table": "weight", "gain": "weight", "bias": "bias"}


def shapes(graph: Graph) -> Shapes:
    """Return the name and shape of every parameter of the program, in the order of its layers."""
    return {f"{layer.name}.{p.name}": tuple(p.shape) for layer in graph.layers for p in layer.params}


# ------------------------------------------------------------------------------------------ files


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename, fsync of the folder. Raises AMP730 (exit 4)."""
    temporary = path.with_name(f".{path.name}.tmp{os.getpid()}")
    try:
        with open(temporary, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise cannot_write(path, e) from e


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, e: OSError) -> AmpError:
    """Return the error for a file that could not be written: the disk is full, or it isn't allowed."""
    reason = (e.strerror or str(e)).lower()
    return error("AMP730", f"`{path}` can't be written: {reason}", help=write_remedy(path, e), exit_code=4)


def encode(arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the arrays as the content of a safetensors file."""
    from safetensors.numpy import save

    # an empty set of tensors with an empty set of metadata comes out malformed, so no metadata are None
    content = save({name: np.ascontiguousarray(a) for name, a in arrays.items()}, metadata=dict(metadata) if metadata else None)
    if not metadata:
        return content
    # The library writes metadata in an order that is another one in each process; the same weights are to be the same bytes.
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors stay aligned
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def save_weights(path: Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file, whole or not at all."""
    write_bytes(path, encode(arrays, metadata))


def load_arrays(path: Path) -> Arrays:
    """Return all tensors of a safetensors file as they are. Raises AMP711 naming the file if it isn't sound."""
    try:
        content = path.read_bytes()
    except OSError as e:
        raise error("AMP711", f"`{path}` can't be read: {(e.strerror or str(e)).lower()}") from e
    return decode(content, str(path))


def decode(content: bytes, source: str) -> Arrays:
    """Return the tensors in the content of a safetensors file; `source` is its name in messages."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        _check_header(content)
        return dict(load(content))
    except (SafetensorError, ValueError, KeyError, RecursionError, TypeError) as e:
        hint = "a PyTorch file has to be saved with `safetensors.torch.save_file` first" if content[:2] in (b"PK", b"\x80\x02") else None
        raise error("AMP711", f"`{source}` is no sound safetensors file: {str(e).lower()[:200]}", help=hint) from e


def _check_header(content: bytes) -> None:
    """Refuse what the library lets pass or reads slowly: an endless header and the same name twice."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(HEADER_LIMIT, len(content) - 8):
        raise ValueError("it is cut short or has no header")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = next((n for n in names if names.count(n) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise ValueError(f"the name {twice!r} appears twice")
        return dict(pairs)

    json.loads(content[8 : 8 + size].decode("utf-8"), object_pairs_hook=unique)


# ------------------------------------------------------------------------------------------ what fits


def fit(arrays: Mapping[str, npt.NDArray[Any]], wanted: Shapes, source: str, *, partial: bool = False) -> tuple[Arrays, list[str]]:
    """Return (float32 arrays that the program has, names left out or left untouched).

    Every name and shape has to agree, but for copies (`spread`); `partial` allows names that only one side has (never a wrong shape, never nothing).
    Raises AMP710 with every name that doesn't fit, the shapes found and the shapes wanted.
    """
    arrays = spread(divided(arrays, wanted), wanted)
    missing = [n for n in wanted if n not in arrays]
    extra = sorted(n for n in arrays if n not in wanted)  # the library's order is a new one in each process
    notes = [
        f"`{n}` has shape {_shape(arrays[n].shape)}, the program wants {_shape(s)}" for n, s in wanted.items() if n in arrays and arrays[n].shape != s
    ]
    notes += [f"`{n}` holds {arrays[n].dtype}, not floating-point numbers" for n in wanted if n in arrays and arrays[n].dtype.kind != "f"]
    unfit = {plain_name(n) for n in missing} & {plain_name(n) for n in extra}
    unfit = {n for n in unfit if any(plain_name(x) == n and part_number(x) is not None for x in (*missing, *extra))}
    for plain in sorted(unfit):
        found = ", ".join(f"`{n}` {_shape(arrays[n].shape)}" for n in extra if plain_name(n) == plain)
        into = ", ".join(f"`{n}` {_shape(wanted[n])}" for n in missing if plain_name(n) == plain)
        notes.append(f"{found} in the file can't be joined and cut into {into}")
    missing, extra = ([n for n in names if plain_name(n) not in unfit] for names in (missing, extra))
    bad = len(notes)
    if not partial:
        notes += [f"`{n}` {_shape(wanted[n])} is missing in the file" for n in missing]
        notes += [f"`{n}` {_shape(arrays[n].shape)} is in the file, but the program has no such parameter{_near(n, missing)}" for n in extra]
        bad += len(missing) == len(wanted)  # nothing agrees, so there is nothing to take over
    if not notes and len(missing) == len(wanted):
        notes.append("no name of the file is one of the program: " + listed(extra))
        bad = 1
    if notes:
        hint = None if bad else "`--init-partial` takes over the names that agree and lists the others"
        if len(notes) > MOST_NOTES:
            notes = [*notes[:MOST_NOTES], f"{len(notes) - MOST_NOTES} more of the kind"]
        raise AmpError(Diagnostic("AMP710", f"the weights in `{source}` don't fit the program", notes=tuple(notes), help=hint))
    return {n: np.asarray(arrays[n], dtype=np.float32) for n in wanted if n in arrays}, missing + extra


def spread(arrays: Mapping[str, npt.NDArray[Any]], wanted: Iterable[str]) -> Arrays:
    """Return the arrays under the names of the program's copies: each parameter that the file has in other copies, or in one, goes to all of them.

    The mean is taken of several copies; what the program has under the same names stays as it is.
    """
    here, there = _by_uncopied_name(wanted), _by_uncopied_name(arrays)
    out = dict(arrays)
    for plain, names in here.items():
        found = there.get(plain, [])
        if not found or set(found) == set(names) or len({arrays[n].shape for n in found}) > 1:
            continue
        value = mean({n: arrays[n] for n in found})[plain]
        for n in found:
            del out[n]
        out |= dict.fromkeys(names, value)
    return out


def mean(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the arrays with the mean of all copies of a parameter under the name without a copy's number."""
    return {
        plain: arrays[names[0]] if len(names) == 1 else np.mean([arrays[n] for n in names], axis=0, dtype=np.float64).astype(arrays[names[0]].dtype)
        for plain, names in _by_uncopied_name(arrays).items()
    }


def _by_uncopied_name(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(uncopied(name), []).append(name)
    return found


def divided(arrays: Mapping[str, npt.NDArray[Any]], wanted: Shapes) -> Arrays:
    """Return the arrays cut into the parts that the program has of a layer that is split (`big@0.w`, ...), or joined where it has the whole.

    What is in equal parts on both sides, or does not fit, stays as it is. Copies are left alone: each is cut or joined by itself.
    """
    here = _parts({uncopied(n): None for n in wanted})
    shape = {uncopied(n): s for n, s in wanted.items()}
    out = dict(arrays)
    for whole, names in _parts(arrays).items():
        into = here.get(uncopied(whole), [])
        found, shapes_here = [arrays[n] for n in names], [shape[n] for n in into]
        numbers = [part_number(n) for n in names]
        whole_or_all = numbers == [None] or numbers == list(range(len(numbers)))  # a file that lacks a part can't be joined
        if not into or not whole_or_all or ([uncopied(n) for n in names] == into and [a.shape for a in found] == shapes_here):
            continue
        axes = range(found[0].ndim - 1, -1, -1)
        cuts = (_cut_anew(found, shapes_here, along, across) for along in axes for across in axes)
        cut = next((c for c in cuts if c is not None), None)
        if cut is not None:
            for n in names:
                del out[n]
            copy = copy_number(whole)
            out |= {n if copy is None else _copied(n, copy): a for n, a in zip(into, cut)}
    return out


def _copied(parameter: str, copy: int) -> str:
    layer, _, name = parameter.rpartition(".")
    return f"{copy_name(layer, copy)}.{name}"


def _parts(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the name of each whole parameter -> the names of its parts in their order, or its own alone."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(undivided(name), []).append(name)
    return {whole: sorted(parts, key=lambda n: part_number(n) or 0) for whole, parts in found.items()}


def _cut_anew(
    parts: list[npt.NDArray[Any]], shapes_here: list[tuple[int, ...]], along: int, axis: int
) -> list[npt.NDArray[Any]] | None:
    """Return what `parts` hold, joined in the direction `along` and cut across `axis` into `shapes_here`, or None if that can't be."""
    try:
        whole = np.concatenate(parts, along)
    except ValueError:
        return None
    rest = whole.shape[:axis], whole.shape[axis + 1 :]
    if any(len(s) != whole.ndim or (s[:axis], s[axis + 1 :]) != rest for s in shapes_here) or sum(s[axis] for s in shapes_here) != whole.shape[axis]:
        return None
    return np.split(whole, np.cumsum([s[axis] for s in shapes_here])[:-1], axis)


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return the names as text, at most `most` of them."""
    every = [f"`{n}`" for n in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(int(s)) for s in shape) + "]"


def _near(name: str, candidates: list[str]) -> str:
    near = did_you_mean(name, candidates)
    return f" ({near})" if near else ""


def load_weights(path: Path, graph: Graph, *, partial: bool = False) -> tuple[Arrays, list[str]]:
    """Return the parameters in a safetensors file that `fit` the program, and the names left out."""
    return fit(load_arrays(path), shapes(graph), str(path), partial=partial)


def initialise(specs: list[str], graph: Graph, *, names: Path | None = None, partial: bool = False) -> tuple[Arrays, list[str]]:
    """Return (parameters to start from, names left out) from the values of `--init`, later ones winning.

    "FILE" holds the whole program (under PyTorch's names if `names` is a map or "torch"); "LAYER=FILE" holds one layer or family:
    tensors `LAYER.p` or `p`, or a single tensor of whatever name if the layer has a single parameter; other layers' tensors are left alone.
    A file may be a folder that holds weights: of a run (its best, else its last) or of a checkpoint.
    Raises AMP705 (no such layer), AMP710, AMP711, AMP712 (map).
    """
    found: Arrays = {}
    left: list[str] = []
    for spec in specs:
        layer, equals, file = spec.partition("=")
        if equals and not Path(spec).exists():
            found |= _one_layer(layer.strip(), weights_file(Path(file.strip())), graph, names)
            continue
        path = weights_file(Path(spec))
        stored = load_arrays(path)
        if names is not None:
            arrays, rest = from_torch(stored, graph, name_map(graph, names), str(path), partial=partial)
            found |= arrays
            left += rest
        else:
            _check_names(stored, graph, str(path))
            arrays, rest = fit(stored, shapes(graph), str(path), partial=partial)
            found |= arrays
            left += rest
    return found, left


def weights_file(path: Path) -> Path:
    """Return the file of weights that `path` stands for: of a folder the best of a run, else the last; AMP711 if it holds none."""
    if not path.is_dir():
        return path
    for name in ("best.safetensors", "weights.safetensors"):
        if (path / name).exists():
            return path / name
    raise error("AMP711", f"the folder `{path}` holds no weights", help="give a run folder, one of its `checkpoints/<n>`, or a safetensors file")


def _check_names(arrays: Arrays, graph: Graph, source: str) -> None:
    """Raise AMP710 if the names of a file are not the program's, but those that PyTorch would give its parameters."""
    ours, theirs = {*map(plain_name, shapes(graph))}, set(name_map(graph, None).values())
    if not ours & (set(arrays) - theirs) and theirs & (set(arrays) - ours):
        problem = f"the weights in `{source}` have the names of a PyTorch state dict"
        raise error("AMP710", problem, help='add `--names torch`, in Python `names="torch"`; `--names FILE` maps other names')


def _one_layer(layer: str, path: Path, graph: Graph, map_file: Path | None) -> Arrays:
    every = shapes(graph)
    named = layer + "."
    wanted = {n: s for n, s in every.items() if layer in names_of(n.rpartition(".")[0])}
    if not wanted:
        layers = [x.name for x in graph.layers]
        hint = did_you_mean(layer, layers) or "layers: " + ", ".join(f"`{x}`" for x in layers)
        raise error("AMP705", f"`--init {layer}={path}`: the model has no layer `{layer}`", help=hint)
    arrays = load_arrays(path)
    if map_file is not None:
        arrays = _renamed(arrays, graph, name_map(graph, map_file))
    elif len(arrays) > 1:
        _check_names(arrays, graph, str(path))
    names = {*wanted, *(n for w in wanted for n in (plain_name(w), uncopied(w), undivided(w)) if n.startswith(named))}
    if len(arrays) == 1 and len({plain_name(n) for n in wanted}) == 1:
        arrays = {min(names, key=len): next(iter(arrays.values()))}
    bare = {f"{layer}.{n}": a for n, a in arrays.items() if f"{layer}.{n}" in names}
    own = {n: a for n, a in arrays.items() if n in names or n.startswith(named) or layer in names_of(n.rpartition(".")[0])}
    return fit(bare | own, wanted, str(path))[0]


# ------------------------------------------------------------------------------------------ PyTorch's names


def name_map(graph: Graph, path: Path | None) -> dict[str, str]:
    """Return parameter (by its plain name) -> name in a PyTorch state dict.

    A map file is TOML or JSON: `"step.w" = "rnn.weight"` for a parameter, `step = "rnn"` for a layer (then w is `rnn.weight`, b `rnn.bias`,
    a table `rnn.weight`). What it doesn't name, and everything without a file (or with the word `torch`), goes by the layer's own name.
    """
    chosen = {} if path is None or str(path) == "torch" else _read_map(path)
    layers = {plain_name(layer.name) for layer in graph.layers}
    known = layers | {name.rpartition(".")[0] for name in layers if "." in name}
    parameters = list(dict.fromkeys(map(plain_name, shapes(graph))))
    for name in chosen:
        if name not in known and name not in parameters:
            hint = did_you_mean(name, [*known, *parameters]) or "the program has " + ", ".join(f"`{p}`" for p in parameters)
            raise error("AMP712", f"`{name}` in `{path}` is neither a layer nor a parameter of the program", help=hint)
    result = {}
    for name in parameters:
        layer, _, parameter = name.rpartition(".")
        family, _, member = layer.rpartition(".")
        module = chosen.get(layer) or (f"{chosen[family]}.{member}" if family in chosen else layer)
        result[name] = chosen.get(name) or f"{module}.{TORCH_NAMES.get(parameter, parameter)}"
    twice = {n for n in result.values() if list(result.values()).count(n) > 1}
    if twice:
        raise error("AMP712", f"two parameters share the name `{sorted(twice)[0]}` of PyTorch's side", help="give each its own name in the map")
    return result


def _read_map(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as e:
        raise error("AMP712", f"the name map `{path}` can't be read: {str(e).lower()[:200]}") from e
    if not isinstance(document, dict) or not all(isinstance(v, str) for v in document.values()):
        raise error(
            "AMP712",
            f"the name map `{path}` expects one text for each name",
            help='write `"step.w" = "rnn.weight"`, with quotes around a name with a dot',
        )
    return document


def _is_transposed(graph: Graph, name: str) -> bool:
    """Whether PyTorch keeps this parameter the other way round: `nn.Linear.weight` is [out, in], ours [in, out]."""
    layer, _, parameter = name.rpartition(".")
    return parameter == "w" and any(plain_name(x.name) == layer and x.form.lower() == "linear" for x in graph.layers)


def to_torch(arrays: Mapping[str, npt.NDArray[Any]], graph: Graph, names: Mapping[str, str]) -> Arrays:
    """Return the parameters as a PyTorch state dict would hold them: of copies the mean, of parts the whole."""
    whole = divided(mean(arrays), _whole_shapes(graph))
    return {names[n]: np.ascontiguousarray(a.T) if _is_transposed(graph, n) else np.asarray(a) for n, a in whole.items()}


def _whole_shapes(graph: Graph) -> Shapes:
    """Return the shapes of the parameters as they are in the source, without copies and parts."""
    out: Shapes = {}
    for layer in graph.layers:
        for p in layer.params:
            shape = list(p.shape)
            if p.cut:
                shape[p.cut[0]] = p.cut[2]
            out[plain_name(f"{layer.name}.{p.name}")] = tuple(shape)
    return out


def from_torch(
    state: Mapping[str, npt.NDArray[Any]], graph: Graph, names: Mapping[str, str], source: str, *, partial: bool = False
) -> tuple[Arrays, list[str]]:
    """Return (parameters, names left out) from a state dict's arrays. Raises AMP710 in the program's names."""
    return fit(_renamed(state, graph, names), shapes(graph), source, partial=partial)


def _renamed(state: Mapping[str, npt.NDArray[Any]], graph: Graph, names: Mapping[str, str]) -> Arrays:
    back = {torch: ours for ours, torch in names.items()}
    ours = {}
    for name, a in state.items():
        target = back.get(name, name)
        ours[target] = np.ascontiguousarray(a.T) if target in back.values() and _is_transposed(graph, target) else a
    return ours
