"""List reduction: a sequence is an operation and one to nine digits, its label the result modulo 10. The task of the AMPNet paper.

Everything is drawn and computed whole arrays at a time, in exact integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ampc.data.recipes.base import Option, Product, Recipe
from ampc.data.write import ragged

Ints = npt.NDArray[np.int64]

MAX_DIGITS = 9
DISJOINT_FROM = 5  # digits from which on validation sequences are kept out of the training set: shorter ones are too few to be

README = """# List reduction

Made by `ampc data list_reduction`. `train.parquet` and `valid.parquet`, one sequence a row:

- `symbol`: list of tokens. The first is the operation (10..13), then 1 to 9 digits (0..9).
- `label`: the result modulo 10.

| token | operation on the digits L |
| --- | --- |
| 10 | mean(L) |
| 11 | mean(L[0::2]) - mean(L[1::2]); the mean of no digits is 0 |
| 12 | max(L) - min(L) |
| 13 | len(L) |

Operation, number of digits (1 to 9) and digits are drawn uniformly and independently. Results are rounded to the nearest integer, halves to the
even one (as Python's `round`), then taken modulo 10 (never negative: -3 gives 7).

A validation sequence of 5 digits or more is never one of the training set. Shorter ones are drawn freely, since nearly all that exist are in
the training set; `meta.json` counts how many are.
"""


def labels(digits: Ints, lengths: Ints, operation: Ints) -> Ints:
    """Return the label of each sequence. digits: [n, 9], of which the first `lengths[i]` count; operation: 0..3."""
    position = np.arange(MAX_DIGITS)
    there = position < lengths[:, None]
    counted = np.where(there, digits, 0)
    even, odd = counted[:, 0::2].sum(axis=1), counted[:, 1::2].sum(axis=1)
    n_even, n_odd = (lengths + 1) // 2, np.maximum(lengths // 2, 1)
    # one division of integers each: halves are exact, so the rounding rule decides them and not the arithmetic
    mean = np.rint((even + odd) / lengths).astype(np.int64)
    alternating = np.rint((even * n_odd - odd * n_even) / (n_even * n_odd)).astype(np.int64)
    spread = counted.max(axis=1) - np.where(there, digits, 9).min(axis=1)
    return np.choose(operation, [mean, alternating, spread, lengths]) % 10


def draw(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """Return digits [n, 9], lengths and operations of `n` sequences."""
    lengths = rng.integers(1, MAX_DIGITS + 1, n)
    digits = np.where(np.arange(MAX_DIGITS) < lengths[:, None], rng.integers(0, 10, (n, MAX_DIGITS)), 0)
    return digits, lengths, rng.integers(0, 4, n)


def codes(digits: Ints, lengths: Ints, operation: Ints) -> Ints:
    """Return a number that tells a sequence from every other."""
    value = digits @ 10 ** np.arange(MAX_DIGITS)
    code: Ints = (operation * 10 + lengths) * 10**MAX_DIGITS + value
    return code


def build(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    rng = np.random.default_rng(seed)
    train = draw(rng, options["train"])
    known = np.unique(codes(*train))
    valid = draw(rng, options["valid"])
    while True:
        seen = np.isin(codes(*valid), known)
        again = np.flatnonzero(seen & (valid[1] >= DISJOINT_FROM))
        if not len(again):
            break
        # the same lengths and operations with new digits, so that their distribution stays uniform
        fresh = rng.integers(0, 10, (len(again), MAX_DIGITS))
        valid[0][again] = np.where(np.arange(MAX_DIGITS) < valid[1][again, None], fresh, 0)
    shared = {str(k): int(seen[valid[1] == k].sum()) for k in range(1, MAX_DIGITS + 1)}
    tables = {"train": _table(*train), "valid": _table(*valid)}
    return Product(tables, README, {"vocabulary": 14, "classes": 10, "valid_also_in_train_by_digits": shared})


def _table(digits: Ints, lengths: Ints, operation: Ints) -> Any:
    tokens = np.concatenate([operation[:, None] + 10, digits], axis=1)
    there = np.arange(MAX_DIGITS + 1) <= lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
    return pa.table(
        {"symbol": ragged(offsets, pa.array(tokens[there].astype(np.int32))), "label": pa.array(labels(digits, lengths, operation).astype(np.int32))}
    )


RECIPE = Recipe(
    "list_reduction",
    "sequences of an operation and up to nine digits; the label is the result modulo 10",
    False,
    build,
    (
        Option("train", "int", 100_000, "how many training sequences", 1, 10_000_000),
        Option("valid", "int", 10_000, "how many validation sequences", 1, 1_000_000),
    ),
    model="list_reduction",
)

__all__ = ["RECIPE", "codes", "draw", "labels"]
