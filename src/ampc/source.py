"""Source texts: read from a file, from standard input, or from the models that come with ampc; remembered so that errors can show lines."""

from __future__ import annotations

import dataclasses
import sys
from importlib import resources
from pathlib import Path

from ampc.diagnostics import SOURCES, did_you_mean, error, printable

MAX_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """`name` is the file's own name without its folder: it goes into spans and manifests, which hold no paths."""

    name: str
    text: str


def bundled_models() -> list[str]:
    """Return the names of the models that come with ampc, sorted."""
    return sorted(f.name[: -len(".amp")] for f in (resources.files("ampc") / "models").iterdir() if f.name.endswith(".amp"))


def read_source(path: str | Path) -> Source:
    """Return the text of file `path`, of standard input for `-`, or of a bundled model for a bare name that is no file.

    Raises AmpError AMP910 (not found or unreadable), AMP911 (too large), AMP912 (not UTF-8).
    """
    given = str(path)
    if given == "-":
        return remember("stdin.amp", sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    file = Path(path)
    shown = printable(given)
    try:
        if not file.exists() and "/" not in given and given in bundled_models():
            return remember(f"{given}.amp", (resources.files("ampc") / "models" / f"{given}.amp").read_bytes(), shown)
        if file.is_dir():
            compiled = (file / "manifest.json").is_file()
            remedy = f"it is a compiled model: `ampc run {shown}` runs it; to compile again, name the `.amp` file" if compiled else None
            raise error("AMP910", f"`{shown}` is a folder, expected a file with a model", help=remedy)
        with file.open("rb") as stream:
            return remember(file.name, stream.read(MAX_BYTES + 1), shown)
    except FileNotFoundError:
        beside = [str(f) for f in file.parent.glob("*.amp")] if file.parent.is_dir() else []
        remedy = did_you_mean(given, [*beside, *bundled_models()])
        raise error("AMP910", f"there is no file `{shown}`", help=remedy) from None
    except (OSError, ValueError) as e:  # ValueError: a null character in the name
        raise error("AMP910", f"`{shown}` cannot be read: {(getattr(e, 'strerror', None) or str(e)).lower()}") from None


def remember(name: str, content: bytes, shown: str) -> Source:
    """Return `content` as a source, kept for `texts`."""
    if len(content) > MAX_BYTES:
        raise error("AMP911", f"`{shown}` is larger than {MAX_BYTES} bytes, which no model is")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as e:
        raise error("AMP912", f"`{shown}` is not UTF-8 text: byte {e.start} is 0x{content[e.start]:02x}", help="is this a model?") from None
    SOURCES[name] = text
    return Source(name, text)


def texts() -> dict[str, str]:
    """Return name -> text of all sources read so far, as `diagnostics.render` wants them."""
    return dict(SOURCES)


__all__ = ["Source", "bundled_models", "read_source", "remember", "texts"]
