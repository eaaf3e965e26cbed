"""Images of digits: MNIST from its original IDX files, and the 8 x 8 set that scikit-learn carries (needs no file and no network)."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ampc.data.recipes.base import Option, Product, Recipe, damaged, source_file
from ampc.data.write import flat
from ampc.diagnostics import error

MAX_BYTES = 256 << 20  # of one IDX file, unpacked; MNIST's largest has 47 MB

MNIST_README = """# MNIST

Made by `ampc data mnist` from the original IDX files. `image`: 784 numbers 0..1 (pixel / 255), row by row from the top left, not standardised
further; `label`: 0..9.

Without `holdout`, `train.parquet` has the 60,000 training images and `valid.parquet` the 10,000 test images, as in the AMPNet paper. With it, the
last `holdout` training images are `valid.parquet`, and the test images are `test.parquet`.
"""

DIGITS_README = """# Digits

Made by `ampc data digits` from the 1,797 images that scikit-learn ships (the test part of the UCI "optical recognition of handwritten digits").
`image`: 64 numbers 0..1 (the original counts 0..16, divided by 16), 8 x 8, row by row from the top left; `label`: 0..9.

Shuffled by the seed; the last `valid` images are `valid.parquet`, the others `train.parquet`.
"""


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array of an IDX file of bytes, packed by gzip or not. Raises AmpError (AMP822) if it isn't one."""
    try:
        with path.open("rb") as raw, gzip.open(raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw as file:
            head = file.read(4)
            if len(head) < 4 or head[:3] != b"\x00\x00\x08" or not 1 <= head[3] <= 4:
                raise damaged(path, "it doesn't begin like an IDX file of bytes")
            sizes = file.read(4 * head[3])
            shape = struct.unpack(f">{head[3]}I", sizes) if len(sizes) == 4 * head[3] else (0,)
            size = math.prod(shape)
            if size > MAX_BYTES:
                raise damaged(path, f"it claims to hold {size:,} bytes")
            data = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as failure:
        raise damaged(path, str(failure).lower()) from None
    if len(data) != size or not size:
        raise damaged(path, f"its head says {' x '.join(map(str, shape))}, but {'more' if len(data) > size else f'only {len(data)}'} bytes follow")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _mnist_part(source: Path | None, stem: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    names = [f"{stem}-images-idx3-ubyte.gz", f"{stem}-images-idx3-ubyte", f"{stem}-images.idx3-ubyte"]
    images_path = source_file(source, *names)
    labels_path = source_file(source, *(n.replace("images", "labels").replace("idx3", "idx1") for n in names))
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise damaged(images_path, f"its shape is {' x '.join(map(str, images.shape))}, expected n x 28 x 28")
    if labels.shape != images.shape[:1]:
        raise damaged(labels_path, f"it has {labels.size} labels for {len(images)} images")
    if labels.max() > 9:
        raise damaged(labels_path, f"a label is {labels.max()}, expected 0..9")
    return images.reshape(len(images), 784).astype(np.float32) / np.float32(255), labels.astype(np.int32)


def build_mnist(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    train, test = _mnist_part(source, "train"), _mnist_part(source, "t10k")
    hold = options["holdout"]
    if hold >= len(train[0]):
        raise error("AMP820", f"the option `holdout` is {hold}, but there are only {len(train[0])} training images")
    if hold:
        tables = {"train": _table(train[0][:-hold], train[1][:-hold]), "valid": _table(train[0][-hold:], train[1][-hold:]), "test": _table(*test)}
    else:
        tables = {"train": _table(*train), "valid": _table(*test)}
    return Product(tables, MNIST_README, {"pixels": 784, "classes": 10, "scale": "pixel / 255"})


def build_digits(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise error(
            "AMP823", "the recipe `digits` needs the package scikit-learn, which isn't installed", help="pip install 'ampc[digits]'"
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (pixels[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    cut = len(labels) - options["valid"]
    return Product(
        {"train": _table(images[:cut], labels[:cut]), "valid": _table(images[cut:], labels[cut:])},
        DIGITS_README,
        {"pixels": 64, "classes": 10, "scale": "count / 16"},
    )


def _table(images: npt.NDArray[np.float32], labels: npt.NDArray[np.int32]) -> Any:
    return pa.table({"image": flat("image", images), "label": pa.array(labels)})


MNIST = Recipe(
    "mnist",
    "handwritten digits, 28 x 28, from the original IDX files",
    True,
    build_mnist,
    (Option("holdout", "int", 0, "how many of the last training images to validate on; 0: validate on the test images", 0),),
    model="mnist_mlp",
)
DIGITS = Recipe(
    "digits",
    "handwritten digits, 8 x 8, from scikit-learn",
    False,
    build_digits,
    (Option("valid", "int", 360, "how many images to validate on", 1, 1796),),
    model="digits_mlp",
)

__all__ = ["DIGITS", "MNIST", "read_idx"]
