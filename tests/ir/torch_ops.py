"""PyTorch's counterpart of each operation that has one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ampc.ir import RowIndex, Segments

Counterpart = Callable[[list[Tensor], list[Any], dict[str, Tensor], dict[str, Any]], Tensor]


def known(fields: list[Any], xs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The prediction and the target, rows without a target left out."""
    if not fields:
        return xs[0], xs[1]
    target = np.asarray(fields[0])
    if target.dtype.kind == "f":
        rows = ~np.isnan(target).any(axis=1)
        return xs[0][rows], torch.tensor(target[rows])
    rows = target >= 0
    return xs[0][rows], torch.tensor(target[rows])[:, None].double()


def labels(fields: list[Any], xs: list[Tensor]) -> tuple[Tensor, Tensor]:
    label = torch.tensor(fields[0]) if fields else xs[1][:, 0]
    return xs[0][label >= 0], label[label >= 0]


def reduce(x: Tensor, owner: np.ndarray, n: int, how: str) -> Tensor:
    rows = []
    for i in range(n):
        mine = x[torch.tensor(np.flatnonzero(owner == i))]
        if not len(mine):
            rows.append(torch.zeros(x.shape[1], dtype=x.dtype))
        else:
            rows.append(mine.max(0).values if how == "max" else mine.mean(0) if how == "mean" else mine.sum(0))
    return torch.stack(rows)


def by_owner(xs: list[Tensor], fields: list[Any], params: dict[str, Tensor], attrs: dict[str, Any]) -> Tensor:
    where = fields[0]
    if isinstance(where, RowIndex):
        return reduce(xs[0], where.values, where.rows, attrs["reduce"])
    return reduce(xs[0], where.owner, len(where.lengths), attrs["reduce"])


def softmax_rows(xs: list[Tensor], fields: list[Segments], params: dict[str, Tensor], attrs: dict[str, Any]) -> Tensor:
    starts = fields[0].starts
    return torch.cat([torch.softmax(xs[0][a:b], 0) for a, b in pairwise(starts)])


def gather(xs: list[Tensor], fields: list[RowIndex], params: dict[str, Tensor], attrs: dict[str, Any]) -> Tensor:
    index = torch.tensor(fields[0].values)
    return xs[0][index.clamp(min=0)] * (index >= 0)[:, None]


def linear_by(xs: list[Tensor], fields: list[Any], params: dict[str, Tensor], attrs: dict[str, Any]) -> Tensor:
    rows = []
    for x, k in zip(xs[0], fields[0], strict=True):
        w = params["0.w"]
        rows.append(torch.zeros(w.shape[1], dtype=w.dtype) if k < 0 else x @ params[f"{k}.w"] + params.get(f"{k}.b", torch.zeros(1)))
    return torch.stack(rows)


def lookup(xs: list[Tensor], fields: list[Any], params: dict[str, Tensor], attrs: dict[str, Any]) -> Tensor:
    index = torch.tensor(fields[0]) if fields else xs[0][:, 0]
    return F.embedding(index.clamp(min=0), params["table"]) * (index >= 0)[:, None]


def one(f: Callable[[Tensor], Tensor]) -> Counterpart:
    return lambda xs, fields, params, attrs: f(xs[0])


def total(f: Callable[..., Tensor]) -> Counterpart:
    return lambda xs, fields, params, attrs: f(*known(fields, xs), reduction="sum", **attrs).reshape(1, 1)


COUNTERPARTS: dict[str, Counterpart] = {
    **{n: one(getattr(torch, n)) for n in ("neg", "relu", "sigmoid", "tanh", "sin", "cos", "exp", "log", "sqrt", "abs", "square", "sign", "reciprocal")},
    **{n: one(getattr(F, n)) for n in ("softplus", "elu", "gelu", "silu")},
    "stop_gradient": one(lambda x: x.detach()),
    "identity": one(lambda x: x + 0),
    "leaky_relu": lambda xs, f, p, a: F.leaky_relu(xs[0], a["slope"]),
    "affine": lambda xs, f, p, a: a["scale"] * xs[0] + a["shift"],
    "power": lambda xs, f, p, a: xs[0] ** a["exponent"],
    "clip": lambda xs, f, p, a: xs[0].clamp(a["low"], a["high"]),
    **{n: (lambda name: lambda xs, f, p, a: getattr(torch, name)(*xs))(n) for n in ("add", "sub", "mul", "div", "minimum", "maximum")},
    "pad": lambda xs, f, p, a: F.pad(xs[0], (0, a["cols"] - xs[0].shape[1])),
    "columns": lambda xs, f, p, a: xs[0][:, a["start"] : a["stop"]],
    "softmax": one(lambda x: torch.softmax(x, 1)),
    "log_softmax": one(lambda x: torch.log_softmax(x, 1)),
    "sum_columns": one(lambda x: x.sum(1, keepdim=True)),
    "mean_columns": one(lambda x: x.mean(1, keepdim=True)),
    "max_columns": one(lambda x: x.max(1, keepdim=True).values),
    "dot": lambda xs, f, p, a: (xs[0] * xs[1]).sum(1, keepdim=True),
    "gather": gather,
    "scatter": by_owner,
    "reduce_rows": by_owner,
    "softmax_rows": softmax_rows,
    "expand_rows": lambda xs, f, p, a: xs[0][torch.tensor(f[0].owner)],
    "linear": lambda xs, f, p, a: F.linear(xs[0], p["w"].T, p.get("b")),
    "linear_part": lambda xs, f, p, a: xs[0] @ p["w"][a["first"] : a["first"] + xs[0].shape[1]],
    "linear_by": linear_by,
    "lookup": lookup,
    "layer_norm": lambda xs, f, p, a: F.layer_norm(xs[0], xs[0].shape[1:], p["gain"], p["bias"], a["eps"]),
    "cross_entropy": lambda xs, f, p, a: F.cross_entropy(*labels(f, xs), reduction="sum").reshape(1, 1),
    "value": one(lambda x: x.sum().reshape(1, 1)),
    "squared": total(F.mse_loss),
    "absolute": total(F.l1_loss),
    "huber": total(F.huber_loss),
    "binary_cross_entropy": total(F.binary_cross_entropy_with_logits),
}
