"""PyTorch still says what is written in `torch_values.json`: the values that the other tests compare with, computed anew."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest


def same(a: Any, b: Any) -> bool:
    """Whether two trees of JSON are equal, numbers up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float | int) and isinstance(b, float | int):
        return bool(np.isclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))
    return bool(a == b)


@pytest.mark.torch
@pytest.mark.parametrize("part", ["operations", "models"])
def test_the_written_values_are_those_of_pytorch(part: str) -> None:
    from ir import torch_values

    computed = json.loads(json.dumps(getattr(torch_values, part)()))
    assert same(computed, json.loads(torch_values.FILE.read_text(encoding="utf-8"))[part])
