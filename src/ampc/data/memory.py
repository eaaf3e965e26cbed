"""How much memory there is, and the refusal to begin what can't fit: sizes are compared before anything is allocated."""

from __future__ import annotations

from pathlib import Path

from ampc.diagnostics import error


def available_bytes() -> int | None:
    """Return the bytes that this process may still take: of the machine, its control group and its limits; None if unknown."""
    found = [n for n in (_machine(), _group(), _limit()) if n is not None]
    return min(found) if found else None


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _group() -> int | None:
    root = Path("/sys/fs/cgroup")
    try:
        high = (root / "memory.max").read_text().strip()
        return None if high == "max" else max(0, int(high) - int((root / "memory.current").read_text()))
    except (OSError, ValueError):
        return None


def _limit() -> int | None:
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return soft
    return max(0, soft - pages * resource.getpagesize())


def require(size_bytes: int, name: str, limit_bytes: int | None = None) -> None:
    """Raise AmpError (AMP818, exit code 4) if `name`, which takes `size_bytes`, doesn't fit into `limit_bytes` (default: what is free)."""
    limit = available_bytes() if limit_bytes is None else limit_bytes
    if limit is not None and size_bytes > limit:
        raise error(
            "AMP818",
            f"`{name}` needs about {_mb(size_bytes)} in memory, {_mb(limit)} are available",
            help="use fewer instances, or a machine with more memory",
            exit_code=4,
        )


def _mb(size: int) -> str:
    return f"{max(1, size >> 20):,} MB"


__all__ = ["available_bytes", "require"]
