"""Columns as read to a `Dataset`: nesting, nulls, lengths and ranges against the declared fields, whole arrays at a time.

Everything the engine relies on is made sure of here: after it, an index may be followed and an offset trusted without another look.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ampc.data.dataset import Dataset, Ints
from ampc.data.problems import Problems
from ampc.data.ragged import Column
from ampc.data.rows import null, wrong_shape
from ampc.data.schema import Schema, Spec
from ampc.diagnostics import error

OnNan = Literal["stop", "skip", "ignore"]


def build(schema: Schema, raw: dict[str, Column], n: int, problems: Problems, on_nan: OnNan = "stop") -> Dataset | None:
    """Return the `n` rows of `raw` as a dataset, or None if there are problems (the caller raises them)."""
    fit = {s.name: shaped(s, raw[s.name], problems) for s in schema.specs if s.name in raw}
    columns = {name: c for name, c in fit.items() if c is not None}
    axes, inner = _axes(schema, columns, n, problems)
    flat: dict[str, npt.NDArray[Any]] = {}
    bad_rows = np.zeros(n, bool)
    for spec in schema.specs:
        if (c := columns.get(spec.name)) is None or (spec.axes and spec.axes[-1] not in axes):
            continue
        if spec.decl.kind == "float":
            flat[spec.name] = _floats(spec, c, problems, on_nan, bad_rows)
        else:
            flat[spec.name] = _integers(spec, c, axes, problems)
    if problems:
        return None
    part = problems.part
    data = Dataset(n, axes, inner, flat, part.name, schema.axes, tuple(s.decl for s in schema.specs), (part,))
    return _without(data, bad_rows) if bad_rows.any() else data


def _without(data: Dataset, bad_rows: npt.NDArray[np.bool_]) -> Dataset:
    return dataclasses.replace(data.select(np.flatnonzero(~bad_rows)), skipped=int(bad_rows.sum()))


# ------------------------------------------------------------------------------------------------------ shape


def shaped(spec: Spec, c: Column, problems: Problems) -> Column | None:
    """Return the column with exactly the declared depth and no null where none is allowed, else None."""
    if c.depth == spec.depth + 1 and spec.decl.kind == "float" and not spec.width and _all_ones(c):
        c = Column(c.n, c.levels[:-1], (*c.nulls[:-2], _either(c.nulls[-2], c.nulls[-1])), c.values)  # `float[a, 1]` is `float[a]`
    if c.depth < spec.depth and len(c.values) == 0 and c.depth > 0:
        c = _deepened(c, spec.depth)  # lists that are all empty don't know what they would hold
    if c.depth != spec.depth:
        wrong = wrong_shape(spec, _depth_text(c))
        problems.add_many("AMP810", spec.name, np.zeros(1, np.int64) if c.n else np.zeros(0, np.int64), lambda: wrong.message, wrong.help)
        return None
    good = True
    for d, mask in enumerate(c.nulls):
        if mask is not None and not (d == len(spec.axes) and spec.decl.optional):
            good = _no_nulls(spec, c, d, np.flatnonzero(mask), problems) and good
    if good and spec.width:
        return _widened(spec, c, problems)
    return c if good else None


def _all_ones(c: Column) -> bool:
    return bool((np.diff(c.levels[-1]) == 1).all()) and c.nulls[-2] is None


def _either(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b


def _deepened(c: Column, depth: int) -> Column:
    more = depth - c.depth
    return Column(c.n, (*c.levels, *([np.zeros(1, np.int64)] * more)), (*c.nulls[:-1], *([None] * (more + 1))), c.values)


def _depth_text(c: Column) -> str:
    if c.depth == 0:
        return "a single value in each row"
    return "a list of " + "lists of " * (c.depth - 1) + "single values in each row"


def _no_nulls(spec: Spec, c: Column, depth: int, where: Ints, problems: Problems) -> bool:
    if not len(where):
        return True
    path = spec.name + c.path(depth, int(where[0]))[1]
    if depth < len(spec.axes):
        message = f"`{path}` is null, expected a list over axis `{spec.axes[depth]}`"
        help: str | None = "write [] for an axis without elements"
    else:
        wrong = null(spec, path, inside=depth > len(spec.axes))
        message, help = wrong.message, wrong.help
    problems.add_many("AMP811", spec.name, c.rows(depth, where), lambda: message, help)
    return False


def _widened(spec: Spec, c: Column, problems: Problems) -> Column | None:
    """Return the column if every vector has `width` numbers; a null vector gets `width` of them (marked)."""
    lengths, mask, depth = np.diff(c.levels[-1]), c.nulls[-2], len(spec.axes)
    wrong = lengths != spec.width if mask is None else (lengths != spec.width) & ~mask
    if wrong.any():
        where = np.flatnonzero(wrong)
        path = spec.name + c.path(depth, int(where[0]))[1]
        problems.add_many(
            "AMP810",
            spec.name,
            c.rows(depth, where),
            lambda: f"`{path}` is of shape [{lengths[where[0]]}], expected shape [{spec.width}]",
            f"the declaration is `{spec.declaration}`: {spec.width} numbers each",
        )
        return None
    if mask is None:
        return c
    values = np.zeros((len(mask), spec.width), c.values.dtype)
    values[~mask] = c.values.reshape(-1, spec.width)
    return Column(c.n, (*c.levels[:-1], np.arange(len(mask) + 1, dtype=np.int64) * spec.width), c.nulls, values.reshape(-1))


# ------------------------------------------------------------------------------------------------------- axes


def _axes(schema: Schema, columns: dict[str, Column], n: int, problems: Problems) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Return the row offsets of all axes and the inner offsets of nested ones; axes whose fields disagree are left out."""
    rows: dict[str, Ints] = {}
    inner: dict[str, Ints] = {}
    bad: set[str] = set()
    for decl in schema.axes:
        depth, first = _depth(schema, decl.name), None
        for spec in schema.specs:
            c = columns.get(spec.name)
            if decl.name not in spec.axes or c is None or bad & set(spec.axes[:depth]):
                continue
            if first is None:
                first = spec
                rows[decl.name] = c.starts(depth)
                if decl.parent:
                    inner[decl.name] = c.levels[depth - 1]
            elif not _agree(decl.name, depth, first, columns[first.name], spec, c, problems):
                bad.add(decl.name)
        if first is None and not any(decl.name in s.axes for s in schema.specs):
            raise error(
                "AMP826",
                f"axis `{decl.name}` has no field, so the data can't tell how many elements it has",
                help=f"declare a field over `{decl.name}`, or drop the axis",
            )
    return {a: o for a, o in rows.items() if a not in bad}, inner


def _depth(schema: Schema, axis: str) -> int:
    parents = {a.name: a.parent for a in schema.axes}
    depth = 0
    while axis:
        axis, depth = parents[axis], depth + 1
    return depth


def _agree(axis: str, depth: int, a: Spec, first: Column, b: Spec, other: Column, problems: Problems) -> bool:
    """Whether two fields over `axis` have the same lengths (those of the parent axis agree already)."""
    x, y = first.levels[depth - 1], other.levels[depth - 1]
    if x is y or np.array_equal(x, y):
        return True
    where = np.flatnonzero(np.diff(x) != np.diff(y))
    i = int(where[0])
    at = first.path(depth - 1, i)[1]
    problems.add_many(
        "AMP814",
        f"{axis} {b.name}",
        first.rows(depth - 1, where),
        lambda: f"`{a.name}{at}` has {x[i + 1] - x[i]} elements of axis `{axis}`, `{b.name}{at}` has {y[i + 1] - y[i]}",
        f"all fields over `{axis}` have one entry for each of its elements",
    )
    return False


# ----------------------------------------------------------------------------------------------------- values


def _floats(spec: Spec, c: Column, problems: Problems, on_nan: OnNan, bad_rows: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return float32 [total, columns]; marks rows to leave out in `bad_rows`."""
    depth = len(spec.axes)
    mask = c.nulls[depth]
    width = max(1, spec.width)
    if c.values.dtype == np.bool_:
        problems.add("AMP809", spec.name, -1, f"`{spec.name}` holds true and false, expected numbers", f"declare `{spec.name}` as flag")
        return np.zeros((0, width), np.float32)
    if mask is not None:
        whole = np.array(c.values).reshape(-1, width)
        whole[mask] = 0
        values = whole.reshape(-1)
    else:
        values = c.values
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(np.float32)
    finite = np.isfinite(out)
    if not finite.all():
        where = np.flatnonzero(~finite)
        large = where[np.isfinite(values[where])]
        if len(large):
            problems.add_many(
                "AMP815",
                spec.name,
                _owner(c, depth, large // width),
                lambda: f"`{_place(spec, c, large[0])}` is {values[large[0]]}, which doesn't fit a float32 (at most 3.4028235e+38)",
                "scale the field down",
            )
        odd = where[~np.isfinite(values[where])]
        if len(odd) and on_nan == "skip":
            bad_rows[_owner(c, depth, odd // width)] = True
        elif len(odd) and on_nan == "stop":
            problems.add_many(
                "AMP816",
                spec.name,
                _owner(c, depth, odd // width),
                lambda: f"`{_place(spec, c, odd[0])}` is {_odd(values[odd[0]])}, expected a finite number",
                "mend the data, or run with `--on-nan skip` to leave such instances out"
                + ("" if spec.decl.optional else "; a value that isn't known is null, declared `or none`"),
            )
    table = out.reshape(-1, width)
    if mask is not None:
        table[mask] = np.nan
    return table


def _odd(value: Any) -> str:
    return "NaN" if np.isnan(value) else ("inf" if value > 0 else "-inf")


def _owner(c: Column, depth: int, entries: Ints) -> Ints:
    return c.rows(depth, entries)


def _place(spec: Spec, c: Column, value: int) -> str:
    return spec.name + c.path(spec.depth, int(value))[1]


def _integers(spec: Spec, c: Column, axes: dict[str, Ints], problems: Problems) -> npt.NDArray[Any]:
    """Return int64 [total], none as -1, each value within its declared range."""
    depth, decl = len(spec.axes), spec.decl
    mask = c.nulls[depth]
    values = _whole_numbers(spec, c, mask, problems)
    if values is None:
        return np.zeros(0, np.int64)
    limit: Any = None
    match decl.kind:
        case "flag":
            limit = 2
        case "index":
            if decl.of not in axes:
                return values  # that axis is in trouble already
            limit = np.repeat(np.diff(axes[decl.of]), np.diff(c.starts(depth)))
        case _:
            limit = decl.below or None
    wrong = _outside(values, limit, decl.optional)
    if mask is not None:
        wrong &= ~mask
    if wrong.any():
        _report_range(spec, c, values, np.flatnonzero(wrong), limit, problems)
    if mask is not None:
        values = np.where(mask, -1, values)
    return values


def _outside(values: Ints, limit: Any, optional: bool) -> npt.NDArray[np.bool_]:
    if limit is None:
        # -1 is how none is stored, so a field that may be none can't hold it as a value
        return values == -1 if optional else np.zeros(len(values), bool)
    outside: npt.NDArray[np.bool_] = (values < 0) | (values >= limit)
    return outside


def _report_range(spec: Spec, c: Column, values: Ints, where: Ints, limit: Any, problems: Problems) -> None:
    i = int(where[0])
    decl, value = spec.decl, int(values[i])
    place = _place(spec, c, i)
    help: str | None = None
    if value == -1:
        help = "write null for none" if decl.optional else f"write null for none, and declare `{spec.declaration} or none`"
    if decl.kind == "index":
        size = int(limit[i])
        allowed = (
            f"allowed is 0..{size - 1} (axis `{decl.of}` has {size} element{'s' if size != 1 else ''} here)"
            if size
            else f"but axis `{decl.of}` has no elements here"
        )
        help = help or f"an index is a position within the instance's axis `{decl.of}`, and positions start at 0"
        code = "AMP813"
    elif limit is None:
        allowed, code = "which stands for none inside ampc", "AMP812"
    else:
        high = int(limit) - 1
        allowed, code = f"allowed is 0..{high}" if high else "allowed is 0", "AMP812"
        help = help or (f"values start at 0: the largest is {high}" if decl.kind == "int" else "a flag is 0, 1, true or false")
    problems.add_many(code, spec.name, c.rows(len(spec.axes), where), lambda: f"`{place}` is {value}, {allowed}", help)


def _whole_numbers(spec: Spec, c: Column, mask: npt.NDArray[np.bool_] | None, problems: Problems) -> Ints | None:
    """Return the values as int64 (arbitrary where `mask` is set), or None after reporting one that isn't a whole number."""
    v = c.values
    if v.dtype == np.bool_:
        if spec.decl.kind != "flag":
            problems.add("AMP809", spec.name, -1, f"`{spec.name}` holds true and false, expected integers", f"declare `{spec.name}` as flag")
            return None
        return v.astype(np.int64)
    if v.dtype.kind == "f":
        v = v.astype(np.float64)
        wrong = ~(np.isfinite(v) & (np.trunc(v) == v) & (np.abs(v) < 2.0**63))
        code, hint = "AMP809", "write null for none" if spec.decl.optional else None
    elif v.dtype == np.uint64:
        wrong = v >= np.uint64(2**63)
        code, hint = "AMP812", None
    else:
        return v.astype(np.int64)
    if mask is not None:
        wrong &= ~mask
        v = np.where(mask, v.dtype.type(0), v)
    if wrong.any():
        where = np.flatnonzero(wrong)
        problems.add_many(
            code, spec.name, c.rows(len(spec.axes), where), lambda: f"`{_place(spec, c, where[0])}` is {v[where[0]]}, expected {spec.wanted}", hint
        )
        return None
    return v.astype(np.int64)


__all__ = ["OnNan", "build", "shaped"]
