"""First values of parameters: a function of the seed and the names alone, so equal on any number of workers and in any process."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import numpy.typing as npt

from ampc.ir.copies import plain_name
from ampc.ir.graph import Graph, Param


def initial_parameters(graph: Graph, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return "layer.param" -> float32 array for every layer.

    Each array's stream depends on the seed, the layer's and the parameter's name only. Copies of a layer, `name~0`, `name~1`, ..., start equal,
    parts, `name@0`, `name@1`, ..., as slices of the whole.
    """
    return {f"{layer.name}.{p.name}": initial(p, seed, plain_name(layer.name)) for layer in graph.layers for p in layer.params}


def initial(param: Param, seed: int, layer: str) -> npt.NDArray[np.float32]:
    """Return one parameter's first value. glorot: uniform within sqrt(6 / (in + out)); he: normal, variance 2 / in; normal, uniform: of `scale`."""
    if param.cut:
        axis, first, extent = param.cut
        whole = msgspec.structs.replace(param, shape=tuple(extent if i == axis else n for i, n in enumerate(param.shape)), cut=())
        return np.ascontiguousarray(initial(whole, seed, layer).take(range(first, first + param.shape[axis]), axis))
    digest = hashlib.sha256(f"{seed}\0{layer}\0{param.name}".encode()).digest()
    stream = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    shape, scale = param.shape, param.scale
    fan_in, fan_out = (shape[0], shape[-1]) if shape else (1, 1)
    match param.init:
        case "glorot":
            limit = scale * (6.0 / max(1, fan_in + fan_out)) ** 0.5
            value = stream.uniform(-limit, limit, shape)
        case "he":
            value = stream.normal(0.0, scale * (2.0 / max(1, fan_in)) ** 0.5, shape)
        case "normal":
            value = stream.normal(0.0, scale, shape)
        case "uniform":
            value = stream.uniform(-scale, scale, shape)
        case "zeros":
            value = np.zeros(shape)
        case "ones":
            value = np.full(shape, scale)
        case "identity":
            value = np.eye(shape[0], shape[-1]) * scale
        case _:
            raise ValueError(f"unknown init {param.init}")
    return value.astype(np.float32)
