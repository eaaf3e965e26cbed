"""Writes torch_values.json: what PyTorch (float64) says of the operations' examples and of the bundled models.

    python tests/ir/torch_values.py        # needs the `torch` extra; run from the root, with src and tests on the path

The tests read the file, so that they need no PyTorch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FILE = HERE / "torch_values.json"
INSTANCES = (1, 2, 3)


def summary(value: np.ndarray) -> list[float]:
    """Two numbers that hold an array: the sum of its values and of values weighed by their place."""
    flat = np.asarray(value, np.float64).ravel()
    return [float(flat.sum()), float((flat * np.cos(np.arange(flat.size))).sum())]


def operations() -> list[dict[str, object]]:
    """For each example with a counterpart: its number, y, and the gradients of its operands and parameters for dy = cos(0, 1, ...)."""
    import torch
    from ir.examples import EXAMPLES
    from ir.torch_ops import COUNTERPARTS

    out = []
    for i, e in enumerate(EXAMPLES):
        if e.op not in COUNTERPARTS:
            continue
        xs = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in e.operands]
        params = {k: torch.tensor(v, requires_grad=True) for k, v in e.params.items()}
        y = COUNTERPARTS[e.op](xs, e.fields, params, e.attrs)
        wanted = [x for x in (*xs, *params.values()) if x.requires_grad]
        g = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)
        grads = torch.autograd.grad(y, wanted, g, allow_unused=True) if wanted and y.requires_grad else [None] * len(wanted)
        full = [torch.zeros_like(x) if d is None else d for x, d in zip(wanted, grads, strict=True)]
        out.append({"example": i, "op": e.op, "y": y.detach().numpy().ravel().tolist(), "gradients": [d.numpy().ravel().tolist() for d in full]})
    return out


def models() -> dict[str, list[dict[str, object]]]:
    """Model -> for each instance the loss and a summary of each parameter's gradient."""
    import torch
    from ir.instances import random_instance
    from ir.test_gradients import MODELS, graph_of, parameters_of
    from ir.torch_models import LOSSES, Net

    out: dict[str, list[dict[str, object]]] = {}
    for path in MODELS:
        if path.stem not in LOSSES:
            continue
        graph, records = graph_of(path), []
        for seed in INSTANCES:
            instance = random_instance(graph, seed)
            params = {k: torch.tensor(v, requires_grad=True) for k, v in parameters_of(graph).items()}
            fields = {k: torch.tensor(v.astype(np.float64) if v.dtype.kind == "f" else v) for k, v in instance.fields.items()}
            loss = LOSSES[path.stem](Net(params, fields, dict(instance.lengths), {k: torch.tensor(v) for k, v in instance.starts.items()}))
            if loss.requires_grad:
                loss.backward()
            records.append({"loss": float(loss.detach()), "gradients": {k: summary(v.grad.numpy()) for k, v in params.items() if v.grad is not None}})
        out[path.stem] = records
    return out


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.path.remove(str(HERE))
    FILE.write_text(json.dumps({"operations": operations(), "models": models()}, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
