"""Which BLAS multiplies matrices: MKL if it is installed and not refused (`AMPC_BLAS=openblas`), else the OpenBLAS of scipy's wheel."""

from __future__ import annotations

import os

def _openblas_address() -> int:
    """Address of the sgemm that scipy's wheel brings. The extension is loaded by itself: importing all of scipy.linalg takes half a second."""
    import ctypes
    import importlib.machinery
    import importlib.util
    from pathlib import Path

    scipy = importlib.util.find_spec("scipy")
    assert scipy is not None and scipy.origin is not None, "scipy is a dependency"
    name = "scipy.linalg.cython_blas"
    file = next((Path(scipy.origin).parent / "linalg").glob("cython_blas*.so"))
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    capsule = module.__pyx_capi__["sgemm"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


def _mkl_address() -> int | None:
    """Address of MKL's sgemm if the optional `mkl` package is installed, else None."""
    import ctypes
    import sys
    from pathlib import Path

    for root in (sys.prefix, sys.base_prefix):
        for path in sorted(Path(root, "lib").glob("libmkl_rt.so*")):
            os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")
            try:
                return ctypes.cast(ctypes.CDLL(str(path)).sgemm_, ctypes.c_void_p).value
            except (OSError, AttributeError):
                return None
    return None


def choose() -> tuple[str, int]:
    """Return (name, address of its Fortran sgemm)."""
    address = None if os.environ.get("AMPC_BLAS", "") == "openblas" else _mkl_address()
    return ("mkl", address) if address else ("scipy-openblas", _openblas_address())


def one_thread_per_call() -> None:
    """Tell every loaded BLAS to use one thread a call: the workers are the parallelism."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")
