"""Files of weights: the same weights are the same bytes, whatever process writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from ampc.runtime.weights import decode, encode

CODE = """
import hashlib, numpy as np
from ampc.runtime.weights import encode
arrays = {f"layer{i}.w": np.full((3, i + 1), i, np.float32) for i in range(5)}
print(hashlib.sha256(encode(arrays, {name: "1" for name in ("program", "ampc", "c", "d", "e")})).hexdigest())
"""


def test_the_same_weights_are_the_same_bytes_in_every_process() -> None:
    sums = {subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout for _ in range(4)}
    assert len(sums) == 1


def test_what_is_written_is_read() -> None:
    from safetensors.numpy import load

    arrays = {"größe.w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(0, np.float64)}
    content = encode(arrays, {"z": "größe", "a": "\\n"})
    for read in (load(content), decode(content, "f")):
        assert {n: a.tolist() for n, a in read.items()} == {n: a.tolist() for n, a in arrays.items()}
    assert int.from_bytes(content[:8], "little") % 8 == 0


def test_metadata_is_read(tmp_path: Path) -> None:
    from safetensors import safe_open

    file = tmp_path / "f.safetensors"
    file.write_bytes(encode({"b": np.zeros(3, np.float32)}, {"z": "größe", "a": "1"}))
    with safe_open(file, "numpy") as opened:
        assert opened.metadata() == {"a": "1", "z": "größe"}
