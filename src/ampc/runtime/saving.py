"""Compiled functions on disk, shared by processes that start at once: numba's cache, made fit for several writers, a full disk and damaged files.

numba reads and rewrites a function's index without a lock: of two processes that compile it for different types, one may name the other's code.
Here a lock is held meanwhile. What can't be written is left out, what can't be read is compiled again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import config, njit
from numba.core.caching import FunctionCache, NullCache

from ampc.runtime import cache


@functools.cache
def _begin(context: Any) -> None:
    """Let a target know all that numba knows, once: numba itself looks again before each function that it loads, which takes longer than loading."""
    context.refresh()


class _Files(FunctionCache):  # type: ignore[misc]  # numba has no types
    """The files of one function."""

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super()._load_overload(sig, target_context)
        except Exception:  # half a file after a crash of the machine, or one of another making: whatever unpickling says of it
            return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        try:
            with cache.locked(self._impl.filename_base):
                try:
                    super()._save_overload(sig, data)
                except OSError:
                    raise
                except Exception:  # a damaged index, see above: what it said is lost
                    self.flush()
                    super()._save_overload(sig, data)
        except OSError:  # no room, or a quota: this process has its code
            pass

    def holds(self, signature: Any, context: Any) -> bool:
        try:
            return self._index_key(signature, context.codegen()) in self._cache_file._load_index()
        except Exception:
            return False


class Saved(NullCache):  # type: ignore[misc]  # numba has no types
    """The cache of one function, whose files are looked for when they are wanted first: most functions are parts of others that are kept whole."""

    def __init__(self, function: Any) -> None:
        self._function = function

    @functools.cached_property
    def _files(self) -> _Files | None:
        try:
            return _Files(self._function)
        except (RuntimeError, OSError):  # nowhere to write to
            return None

    @property
    def cache_path(self) -> Any:
        return None if self._files is None else self._files.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        _begin(target_context)
        return None if self._files is None else self._files._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._files is not None:
            self._files.save_overload(sig, data)

    def holds(self, signature: Any, context: Any) -> bool:
        """Whether code for these types seems to be there; it is not read."""
        return self._files is not None and self._files.holds(signature, context)


def compiled(options: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a decorator like `njit(**options)`, whose functions are kept."""
    if config.DISABLE_JIT:
        return lambda function: function
    plain = {name: value for name, value in options.items() if name != "cache"}

    def wrap(function: Any) -> Any:
        dispatcher = njit(**plain)(function)
        if options.get("cache"):
            dispatcher._cache = Saved(function)
        return dispatcher

    return wrap


__all__ = ["Saved", "compiled"]
