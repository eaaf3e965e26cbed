"""QM9: molecules as graphs of atoms and bonds, the norm of the dipole moment as the target."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ampc.data import memory
from ampc.data.recipes.base import Option, Product, Recipe, damaged, source_file
from ampc.data.write import flat, ragged

README = """# QM9, dipole moment

Made by `ampc data qm9`. One molecule a row, hydrogens included:

- `feature`: 5 numbers an atom, 1 for its element of H, C, N, O, F; `element`: the same as a number 0..4.
- `source`, `target`, `kind`: over the bonds, each bond both ways, one after the other; kind 0..3 is single, double, triple, aromatic.
- `dipole`: the norm of the dipole moment, less the mean and divided by the standard deviation of the training molecules, both in `meta.json`
  (`dipole_mean`, `dipole_std`, Debye): an absolute error times `dipole_std` is in Debye. `dipole_debye` is the moment itself.

`valid.parquet` has the 13,082 molecules of the validation list published with the GGNN samples, `train.parquet` all others, both in an
order drawn by the seed (the original's has the small molecules first).
"""


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of an .npz file, no pickles; sizes are looked at before anything is read. Raises AmpError (AMP822)."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {i.filename: i.file_size for i in archive.infolist()}
            lacking = [n for n in names if f"{n}.npy" not in sizes]
            if lacking:
                raise damaged(path, f"it has no array `{lacking[0]}`")
            memory.require(2 * sum(sizes[f"{n}.npy"] for n in names), str(path))
            for name in names:
                with archive.open(f"{name}.npy") as member:
                    _check_header(path, name, member, sizes[f"{name}.npy"])
        with np.load(path, allow_pickle=False) as arrays:
            return {n: arrays[n] for n in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as failure:
        raise damaged(path, str(failure).splitlines()[0].lower()) from None


def _check_header(path: Path, name: str, member: Any, size: int) -> None:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    if dtype.hasobject or member.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize != size:
        raise damaged(path, f"the size of `{name}` isn't what its head says")


def build(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    path = source_file(source, "qm9_graphs.npz")
    graphs = read_npz(path, ("n_atoms", "n_bonds", "atoms", "bond_a", "bond_b", "bond_type"))
    targets_path = source_file(source, "qm9_targets.npz")
    targets = read_npz(targets_path, ("gdb_index", "values", "scale"))
    ids = targets["gdb_index"].astype(np.int64)
    _check(path, targets_path, graphs, targets)
    dipole = targets["values"][0] / targets["scale"][0]
    held = np.isin(ids, _ids(source_file(source, "valid_idx_ggnn.txt.gz", "valid_idx_ggnn.txt")))
    rng = np.random.default_rng(seed)
    order = {"train": rng.permutation(np.flatnonzero(~held)), "valid": rng.permutation(np.flatnonzero(held))}
    if options["limit"]:
        order = {split: rows[: options["limit"]] for split, rows in order.items()}
    if min(map(len, order.values())) == 0:
        raise damaged(path, "none of the molecules is in one of the two parts")
    mean, std = float(dipole[order["train"]].mean()), float(dipole[order["train"]].std())
    std = std if std > 0 else 1.0
    tables = {split: _table(graphs, dipole, mean, std, rows) for split, rows in order.items()}
    return Product(tables, README, {"dipole_mean": mean, "dipole_std": std, "unit": "Debye", "kinds": 4})


def _ids(path: Path) -> npt.NDArray[np.int64]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return np.array([int(word) for word in file.read(1 << 22).split()], np.int64)
    except (OSError, EOFError, ValueError, zlib.error) as failure:
        raise damaged(path, str(failure).lower()) from None


def _check(path: Path, targets_path: Path, g: dict[str, npt.NDArray[Any]], t: dict[str, npt.NDArray[Any]]) -> None:
    """Raise AmpError if the arrays don't belong together or point outside their molecule."""
    n = len(g["n_atoms"])
    atoms, bonds = g["n_atoms"].astype(np.int64), g["n_bonds"].astype(np.int64)
    if atoms.sum() != len(g["atoms"]) or len(bonds) != n or any(bonds.sum() != len(g[k]) for k in ("bond_a", "bond_b", "bond_type")):
        raise damaged(path, "its counts of atoms and bonds don't fit its flat arrays")
    limit = np.repeat(atoms, bonds)
    if (g["bond_a"] >= limit).any() or (g["bond_b"] >= limit).any() or (g["atoms"] > 4).any() or (g["bond_type"] > 3).any():
        raise damaged(path, "an atom, bond or element is out of range")
    if t["values"].ndim != 2 or t["values"].shape[1] != n or len(t["gdb_index"]) != n or not len(t["scale"]):
        raise damaged(targets_path, f"it isn't about {n} molecules")


def _table(g: dict[str, npt.NDArray[Any]], dipole: npt.NDArray[np.float64], mean: float, std: float, rows: npt.NDArray[np.int64]) -> Any:
    atom_offsets, atom_at = _spans(g["n_atoms"], rows)
    bond_offsets, bond_at = _spans(g["n_bonds"], rows)
    elements = g["atoms"][atom_at].astype(np.int32)
    a, b = g["bond_a"][bond_at].astype(np.int32), g["bond_b"][bond_at].astype(np.int32)
    return pa.table(
        {
            "feature": ragged(atom_offsets, flat("feature", np.eye(5, dtype=np.float32)[elements])),
            "element": ragged(atom_offsets, pa.array(elements)),
            "source": ragged(2 * bond_offsets, pa.array(np.stack([a, b], axis=1).reshape(-1))),
            "target": ragged(2 * bond_offsets, pa.array(np.stack([b, a], axis=1).reshape(-1))),
            "kind": ragged(2 * bond_offsets, pa.array(np.repeat(g["bond_type"][bond_at].astype(np.int32), 2))),
            "dipole": pa.array(((dipole[rows] - mean) / std).astype(np.float32)),
            "dipole_debye": pa.array(dipole[rows].astype(np.float32)),
        }
    )


def _spans(counts: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the offsets of the chosen molecules laid end to end, and where their entries lie in the flat arrays."""
    counts = counts.astype(np.int64)
    begins = np.cumsum(counts) - counts
    lengths = counts[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return offsets, np.repeat(begins[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])


RECIPE = Recipe(
    "qm9",
    "molecules of up to 29 atoms as graphs, with their dipole moment",
    True,
    build,
    (Option("limit", "int", 0, "at most so many molecules a part; 0: all", 0),),
    model="qm9_ggsnn",
)

__all__ = ["RECIPE", "read_npz"]
