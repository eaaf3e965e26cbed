"""JAX as a contender, where it is installed: compiled steps on one thread, each waited for; batches are on the device before the clock starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any


def prepare() -> tuple[Any, Any]:
    """Import JAX for one thread; return (jax, jax.numpy). Raises ModuleNotFoundError where it isn't installed."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    if hasattr(os, "sched_setaffinity"):  # XLA's pools take as many threads as there are cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax
    import jax.numpy as jnp

    return jax, jnp


def adam(jax: Any, jnp: Any, loss: Callable[[Any, Any], Any], rate: float) -> tuple[Any, Any]:
    """Return (state of Adam for weights, compiled step: (weights, state, batch) -> (weights, state, loss))."""

    def begin(p: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, p)
        return zeros, zeros, jnp.zeros((), jnp.float32)

    @jax.jit
    def step(p: Any, state: Any, b: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, b)
        m, v, n = state
        n = n + 1
        m = jax.tree.map(lambda a, x: 0.9 * a + 0.1 * x, m, g)
        v = jax.tree.map(lambda a, x: 0.999 * a + 0.001 * x * x, v, g)
        p = jax.tree.map(lambda w, a, s: w - rate * (a / (1 - 0.9**n)) / (jnp.sqrt(s / (1 - 0.999**n)) + 1e-8), p, m, v)
        return p, (m, v, n), value

    return begin, step


def sgd(jax: Any, jnp: Any, loss: Callable[[Any, Any], Any], rate: float) -> tuple[Any, Any]:
    """As `adam`, for plain steps."""

    @jax.jit
    def step(p: Any, state: Any, b: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, b)
        return jax.tree.map(lambda w, x: w - rate * x, p, g), state, value

    return (lambda p: ()), step


class JaxSteps:
    """Trains `weights` on `batches` in turn; shapes that occur are compiled before the clock starts."""

    def __init__(self, batches: Sequence[Any], sizes: Sequence[int], weights: Any, begin: Any, step: Any) -> None:
        self.batches, self.sizes, self.step = batches, sizes, step
        self.weights, self.state = weights, begin(weights)
        self.k = 0
        self.note = ""
        seen = set()
        for b in batches:
            shape = tuple(getattr(x, "shape", ()) for x in b)
            if shape not in seen:
                seen.add(shape)
                self.step(self.weights, self.state, b)
        self.window(0.3)

    def window(self, seconds: float) -> tuple[int, float]:
        items, loss = 0, 0.0
        began = time.perf_counter()
        while True:
            i = self.k % len(self.batches)
            self.weights, self.state, value = self.step(self.weights, self.state, self.batches[i])
            loss = float(value)  # waits for it
            items += self.sizes[i]
            self.k += 1
            took = time.perf_counter() - began
            if took >= seconds:
                break
        self.note = f"loss {loss:.3f}"
        return items, took


__all__ = ["JaxSteps", "adam", "prepare", "sgd"]
