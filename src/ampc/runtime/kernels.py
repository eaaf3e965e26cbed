"""Loads generated kernels: writes their text into the private cache, under a name made from its content, and imports that file.

The name fixes the content, so compiled code is found again by the next process; the file is always one that this process would write itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ampc.runtime import cache, half, losses, native, rows, segments


LIBRARY = (half, losses, rows, segments)
"""Modules whose kernels the text names; importing them makes them known."""


def load(text: str) -> Callable[..., None]:
    """Return `fire` of the kernels `text`, compiled now or found compiled in the cache."""
    name = f"ampc_kernels_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    if name not in sys.modules:
        with cache.locked("library"):
            native.ensure(re.findall(r"\w+", text[: text.index("def ")]))
        with cache.locked(name):
            _import(name, _file(name, text))
    fire: Callable[..., None] = sys.modules[name].fire
    return fire


def _file(name: str, text: str) -> Path:
    path = cache.folder() / f"{name}.py"
    # numba's index goes by the file's time and size: leave a good file alone, never trust another one.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    return path


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba finds the functions of a cached module by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module  # type: ignore[no-any-return]  # a module, though `Any` above
