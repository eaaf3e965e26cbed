"""What a recipe is, and how its product reaches a folder: built in memory, written beside the target, moved there as a whole.

A recipe never leaves a folder half-written, and never writes into one that holds something else unless told to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ampc.data.write import cannot_write, write_table
from ampc.diagnostics import did_you_mean, error

Value = int | float | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One `--set name=value` of a recipe. `low` and `high` bound a number (inclusive)."""

    name: str
    kind: Literal["int", "float", "flag", "str"]
    default: Value
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """What a recipe makes: a table for each split, other text files by name, facts for `meta.json`, and the README's text."""

    tables: dict[str, Any]
    readme: str
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)


Build = Callable[[Path | None, Mapping[str, Any], int], Product]


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """A named way to make a data folder. `build(source, options, seed)` does the work; `needs_source` asks for `--from DIR`.

    `model` is the bundled model that reads the data.
    """

    name: str
    help: str
    needs_source: bool
    build: Build
    options: tuple[Option, ...] = ()
    model: str = ""

    def make(
        self,
        out_dir: str | Path,
        source_dir: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        *,
        force: bool = False,
    ) -> list[Path]:
        """Write the data folder `out_dir` and return its files; `options` may hold strings, as from a command line.

        Raises AmpError: AMP820 an option, AMP821 `out_dir` holds files and `force` isn't set, AMP822 the source, AMP823 a missing package,
        AMP824 the system refused to write.
        """
        chosen = self.checked(options or {})
        out = Path(out_dir)
        _refuse_occupied(out, force)
        source = self._source(source_dir)
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise error("AMP820", f"the seed is {seed!r}, expected a whole number of 0 or more")
        product = self.build(source, chosen, seed)
        meta = {
            "recipe": self.name,
            "model": self.model,
            "seed": seed,
            "options": chosen,
            "instances": {k: t.num_rows for k, t in product.tables.items()},
            **product.meta,
        }
        return _publish(out, product, meta, force)

    def checked(self, options: Mapping[str, Any]) -> dict[str, Value]:
        """Return all options with their values, typed and ranged. Raises AmpError (AMP820)."""
        known = {o.name: o for o in self.options}
        for name in options:
            if name not in known:
                listed = f"its options are {', '.join(f'`{n}`' for n in known)}" if known else "it has none"
                raise error("AMP820", f"the recipe `{self.name}` has no option `{name}`", help=did_you_mean(name, known) or listed)
        return {name: _typed(option, options[name]) if name in options else option.default for name, option in known.items()}

    def _source(self, given: str | Path | None) -> Path | None:
        if not self.needs_source:
            if given is not None:
                raise error("AMP822", f"the recipe `{self.name}` makes its data itself and takes no source folder", help="leave `--from` out")
            return None
        if given is None:
            raise error(
                "AMP822", f"the recipe `{self.name}` needs the folder with the original files", help=f"ampc data {self.name} --from DIR -o DIR"
            )
        path = Path(given)
        if not path.is_dir():
            raise error("AMP822", f"there is no source folder `{path}`")
        return path


def _typed(option: Option, value: Any) -> Value:
    wanted = {"int": "a whole number", "float": "a number", "flag": "true or false", "str": "a word"}[option.kind]
    wrong = error("AMP820", f"the option `{option.name}` is {str(value)!r}, expected {wanted}{_range(option)}", help=option.help)
    out: Value
    try:
        match option.kind:
            case "int":
                if isinstance(value, (bool, float)):
                    raise wrong
                out = int(value)
            case "float":
                out = float(value)
            case "flag":
                words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
                if str(value).lower() not in words:
                    raise wrong
                out = words[str(value).lower()]
            case _:
                out = str(value)
    except (TypeError, ValueError):
        raise wrong from None
    if option.choices and out not in option.choices:
        raise wrong
    if isinstance(out, (int, float)) and not ((option.low is None or out >= option.low) and (option.high is None or out <= option.high)):
        raise wrong
    return out


def _range(option: Option) -> str:
    if option.choices:
        return f" of {', '.join(option.choices)}"
    if option.low is not None and option.high is not None:
        return f" {option.low:g}..{option.high:g}"
    return f" of {option.low:g} or more" if option.low is not None else ""


def source_file(folder: Path | None, *names: str) -> Path:
    """Return the first of `names` that is in the source folder. Raises AmpError (AMP822) listing what was looked for."""
    assert folder is not None
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise error("AMP822", f"`{folder}` has no {' or '.join(f'`{n}`' for n in names)}", help="name the folder that holds the original files")


def damaged(path: Path, why: str) -> Exception:
    """Return the AmpError for a source file that isn't what it should be."""
    return error("AMP822", f"`{path}` isn't what was expected: {why}", help="fetch the original file again")


def _refuse_occupied(out: Path, force: bool) -> None:
    try:
        if out.exists() and not out.is_dir():
            raise error("AMP821", f"`{out}` is a file, expected a folder to write into")
        if out.is_dir() and any(out.iterdir()) and not force:
            raise error("AMP821", f"the folder `{out}` isn't empty", help="choose another folder, or overwrite what is there with `--force`")
    except OSError as failure:
        raise cannot_write(out, failure) from None


def _publish(out: Path, product: Product, meta: dict[str, Any], force: bool) -> list[Path]:
    temporary: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
        os.chmod(temporary, 0o755)
        for split, table in product.tables.items():
            write_table(temporary / f"{split}.parquet", table)
        texts = {**product.texts, "README.md": product.readme, "meta.json": json.dumps(meta, indent=1, allow_nan=False) + "\n"}
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")
        names = sorted(p.name for p in temporary.iterdir())
        if force and out.is_dir():
            _replace(out, temporary, names)
        else:
            os.replace(temporary, out)
        return [out / n for n in names]
    except OSError as failure:
        raise cannot_write(out, failure) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _replace(out: Path, temporary: Path, names: Iterable[str]) -> None:
    """Move the files into a folder that exists; splits of an earlier product that this one doesn't have go away, other files stay."""
    names = list(names)
    for split in ("train", "valid", "test"):
        for old in out.glob(f"{split}*"):
            if old.name not in names and old.is_file():
                old.unlink()
    for name in names:
        os.replace(temporary / name, out / name)


__all__ = ["Option", "Product", "Recipe", "damaged", "source_file"]
