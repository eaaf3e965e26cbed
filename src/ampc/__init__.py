"""ampc: compile neural networks whose shape depends on each instance, and train them asynchronously.

`ampc.compile` and `ampc.load` return a `Program` with `.train`, `.evaluate` and `.predict`. Importing this module is cheap: each name is imported
when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ampc.api import Program, Summary, compile, load, save
    from ampc.diagnostics import AmpError

__version__ = "0.1.0"
__all__ = ["AmpError", "Program", "Summary", "__version__", "compile", "load", "save"]


def __getattr__(name: str) -> Any:
    if name == "AmpError":
        from ampc.diagnostics import AmpError

        return AmpError
    if name in __all__:
        from ampc import api

        return getattr(api, name)
    raise AttributeError(f"module `ampc` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted(__all__)
