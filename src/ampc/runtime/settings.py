"""How kernels are compiled, and the float32 constants that they use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config

from ampc.runtime import cache
from ampc.runtime.saving import compiled

JIT = not config.DISABLE_JIT
config.CACHE_DIR = str(cache.folder())

# `nnan` and `ninf` stay out: they would let LLVM drop tests for NaN and infinity.
FASTMATH = {"contract", "afn", "arcp", "nsz", "reassoc"}
ENTRY: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": FASTMATH}
"""Options of what Python calls, or what is passed on as a function."""
KERNEL: dict[str, Any] = {**ENTRY, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of what only compiled code calls. Such functions take bare pointers in place of arrays: far less for LLVM to carry around."""
helper = compiled(KERNEL)
"""Decorator of a function that only compiled code calls; it becomes part of each of its callers."""

F0, F1, F2, FH = np.float32(0), np.float32(1), np.float32(2), np.float32(0.5)
