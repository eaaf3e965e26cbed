"""Measure this machine, and write what placement and simulation need to know of it as a target file.

`calibrate` measures; `write` measures and writes. Nothing here is used by a run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ampc.diagnostics import error, printable

if TYPE_CHECKING:
    from ampc.calibrate.measure import Calibration

DEFAULT_SECONDS = 25.0


def calibrate(
    seconds: float = DEFAULT_SECONDS, cores: int | None = None, say: Callable[[str], None] = lambda what: None,
    between: Callable[[], None] = lambda: None,
) -> Calibration:  # fmt: skip
    """Return the measured figures of this machine, for a target of `cores` devices (default: as many as this process may use).

    Takes about `seconds`, the first time also a minute of compilation. `between` is called after each round: what it measures belongs to the
    same period, in which a shared machine may be faster or slower than in another. Raises AmpError AMP941 where kernels are not compiled, AMP942 for
    more cores than there are.
    """
    from ampc.place import usable_cores

    usable = usable_cores()
    if cores is not None and not 1 <= cores <= usable:
        raise error("AMP942", f"{cores} cores can't be measured: this process may use {usable}", help=f"give 1 to {usable}", exit_code=2)
    from ampc.runtime.settings import JIT  # numba comes with it

    if not JIT:
        raise error("AMP941", "kernels run as plain Python here, whose times say nothing of a run", help="unset NUMBA_DISABLE_JIT")
    from ampc.calibrate.measure import measure

    return measure(seconds, cores or usable, say, between)


def check_file(path: Path, *, force: bool) -> None:
    """Raise AmpError AMP940 if `path` is no name of a target file, AMP920 if something else than a calibration is there."""
    from ampc.calibrate.report import MARK

    shown = printable(str(path))
    if path.suffix != ".toml":
        raise error("AMP940", f"`{shown}` does not end in `.toml`, by which a target file is known", help="for instance `-o cpu.toml`", exit_code=2)
    try:
        with path.open("rb") as file:
            ours = file.read(len(MARK.encode())) == MARK.encode()
    except FileNotFoundError:
        return
    except OSError:
        ours = False
    if not ours and not force:
        remedy = "give another file with `-o`, or replace it with `--force`"
        raise error("AMP920", f"`{shown}` is there already, and `ampc calibrate` did not write it", help=remedy)


def write(c: Calibration, path: Path) -> None:
    """Write the target file; raises AmpError AMP690 (exit code 4) if the system refuses."""
    from ampc.calibrate.report import target_text
    from ampc.manifest import write_atomic

    write_atomic(path, target_text(c).encode())


__all__ = ["DEFAULT_SECONDS", "calibrate", "check_file", "write"]
