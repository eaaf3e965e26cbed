"""The manifest: all that crosses from the compiler to a run. Data only, versioned, checked field by field when it is read.

`save` writes the same bytes for the same manifest, whole or not at all. `load` believes nothing: a manifest may come from a stranger.
It holds no code; kernels are generated from it by whoever runs it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable, write_remedy
from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, Loss, Metric, Struct
from ampc.place import Placement, Statistics, Target
from ampc.place.target import verify_target

FORMAT = "ampc-manifest"
VERSION = 2
GENERATOR = "ampc 0.1.0"
FILE_NAME = "manifest.json"

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_INTEGER = 2**53
MAX_COLUMNS = 2**20
MAX_PORTS = 2**20
MAX_TEXT = 1000
AGAIN = "compile the program again: `ampc compile model.amp` writes the manifest anew"


class Manifest(Struct, frozen=True):
    """A compiled and placed program.

    `sources`: file name of each source -> its SHA-256. Training defaults are `graph.train` and each layer's `settings`.
    """

    graph: Graph
    placement: Placement
    target: Target
    statistics: Statistics
    sources: dict[str, str] = {}
    generator: str = GENERATOR
    format: str = FORMAT
    version: int = VERSION

    @property
    def name(self) -> str:
        return self.graph.name

    def digest(self) -> str:
        """Return the SHA-256 of the manifest's bytes: what kernels and checkpoints are filed under."""
        return hashlib.sha256(to_bytes(self)).hexdigest()


# --------------------------------------------------------------------------------------------------- writing


def to_bytes(manifest: Manifest) -> bytes:
    """Return the manifest as JSON text: the same bytes for an equal manifest, on any machine and in any process."""
    head = {"format": manifest.format, "version": manifest.version, "generator": manifest.generator}
    raw = head | msgspec.to_builtins(manifest, str_keys=True, order="deterministic")
    return msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n"


def save(manifest: Manifest, path: str | Path) -> None:
    """Write the manifest to `path`, or leave what is there as it is; raises AmpError AMP690 (exit code 4) if it cannot be written."""
    write_atomic(Path(path), to_bytes(manifest))


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old or the new content, never a part; raises AmpError AMP690."""
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as e:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        reason = (e.strerror or str(e)).lower()
        raise error("AMP690", f"`{printable(str(path))}` cannot be written: {reason}", help=write_remedy(path, e), exit_code=4) from None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a manifest. `load` checks more: names, ranges, operations, the graph, the placement."""
    return msgspec.json.schema(Manifest)


# --------------------------------------------------------------------------------------------------- reading


def load(path: str | Path) -> Manifest:
    """Return the manifest in file `path`, or in `path`/manifest.json for a folder.

    Raises AmpError with one diagnostic AMP601 to AMP611 that names the file and the place in it.
    """
    file = Path(path)
    shown = printable(str(path))
    try:
        if file.is_dir():
            file = file / FILE_NAME
            shown = printable(str(file))
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise error("AMP602", f"`{shown}` has {size} bytes, but a manifest has at most {MAX_BYTES}")
        if file.suffix == ".amp":
            raise error("AMP604", f"`{shown}` is a program, not a manifest", help=f"compile it first: `ampc compile {shown}`")
        content = file.read_bytes()
    except FileNotFoundError:
        raise error("AMP601", f"there is no manifest `{shown}`", help="`ampc compile model.amp` writes one") from None
    except (OSError, ValueError) as e:  # ValueError: a null character in the path
        raise error("AMP601", f"manifest `{shown}` cannot be read: {(getattr(e, 'strerror', None) or str(e)).lower()}") from None
    return from_bytes(content, shown)


def is_manifest_path(path: str | Path) -> bool:
    """Whether `load` is what reads `path`: a folder, or a name that ends in `.json`."""
    try:
        return Path(path).suffix == ".json" or Path(path).is_dir()
    except (OSError, ValueError):  # a name that is too long, or holds a null character
        return False


def from_bytes(content: bytes, file: str = "manifest") -> Manifest:
    """Return the manifest that `content` holds; raises AmpError as `load` does."""
    if len(content) > MAX_BYTES:
        raise error("AMP602", f"`{file}` has {len(content)} bytes, but a manifest has at most {MAX_BYTES}")
    raw = _parse(content, file)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise error("AMP604", f"`{file}` is not an ampc manifest: `$.format` must be \"{FORMAT}\"", help="`ampc compile model.amp` writes a manifest")
    version = raw.get("version")
    if version != VERSION or isinstance(version, bool):
        raise error("AMP605", f"`{file}` has version {_shown(version)}, but this ampc reads version {VERSION}", help="compile the model again")
    _check_values(raw, "$", file)
    try:
        manifest = msgspec.convert(raw, Manifest, str_keys=True)
    except msgspec.ValidationError as e:
        raise _explained(e, file) from None
    _Checker(manifest, file).run()
    return manifest


def _parse(content: bytes, file: str) -> Any:
    """Return the JSON value; refuses deep nesting, repeated keys, NaN and infinities, numbers that JSON readers disagree on."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as e:
        raise error("AMP603", f"`{file}` is not JSON: byte {e.start} is not UTF-8", help=AGAIN) from None
    depth = deepest(text)
    if depth > MAX_DEPTH:
        raise error("AMP602", f"`{file}` nests {depth} deep, but a manifest nests at most {MAX_DEPTH} deep")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) != len(items):
            seen: set[str] = set()
            twice = next(k for k, _ in items if k in seen or seen.add(k))  # type: ignore[func-returns-value]  # `add` returns None: goes on
            raise error("AMP603", f"`{file}` is not JSON that can be trusted: the key `{printable(twice)}` stands twice in one object")
        return out

    def constant(name: str) -> NoReturn:
        raise error("AMP603", f"`{file}` is not JSON: `{name}` is not a number")

    def integer(digits: str) -> int:
        if len(digits) > 20:
            raise error("AMP607", f"`{file}` holds an integer of {len(digits)} digits; allowed are {-MAX_INTEGER} to {MAX_INTEGER}")
        return int(digits)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_int=integer)
    except json.JSONDecodeError as e:
        what = "it is empty" if not text.strip() else f"{e.msg.lower()} at line {e.lineno}, column {e.colno}"
        raise error("AMP603", f"`{file}` is not JSON: {what}", help=AGAIN) from None


_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|[\[{]|[\]}]', re.DOTALL)


def deepest(text: str) -> int:
    """Return how deep brackets and braces nest in JSON text, strings left out; works on broken text too."""
    depth = most = 0
    for match in _TOKENS.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            most = max(most, depth)
        elif token in "]}":
            depth -= 1
    return most


def _check_values(value: Any, path: str, file: str) -> None:
    """Refuse texts and numbers that are out of bounds wherever they stand."""
    match value:
        case dict():
            for key, inner in value.items():
                _check_values(key, f"{path} (a key)", file)
                _check_values(inner, f"{path}.{printable(key)}", file)
        case list():
            for i, inner in enumerate(value):
                _check_values(inner, f"{path}[{i}]", file)
        case str():
            if len(value) > MAX_TEXT:
                raise error("AMP607", f"`{path}` of `{file}` has {len(value)} characters; allowed are {MAX_TEXT}")
            if any("\ud800" <= c <= "\udfff" for c in value):
                raise error("AMP607", f"`{path}` of `{file}` holds half of a surrogate pair, which is no character")
        case bool() | None:
            pass
        case int():
            if abs(value) > MAX_INTEGER:
                raise error("AMP607", f"`{path}` of `{file}` is {value}; allowed are {-MAX_INTEGER} to {MAX_INTEGER}")
        case float():
            if not math.isfinite(value):
                raise error("AMP607", f"`{path}` of `{file}` is too large for a number")


_PATH = re.compile(r" - at (`key` in )?`([^`]*)`$")


def _explained(e: msgspec.ValidationError, file: str) -> AmpError:
    """Return msgspec's complaint in our words, with the path and, for a wrong name, the nearest right one."""
    text = str(e)
    found = _PATH.search(text)
    path, body = (found.group(2), text[: found.start()]) if found else ("$", text)
    body = body[0].lower() + body[1:]
    remedy = None
    unknown = re.fullmatch(r"object contains unknown field `(.*)`", body, re.DOTALL)
    missing = re.fullmatch(r"object missing required field `(.*)`", body)
    tag = re.fullmatch(r"invalid value '(.*)'", body, re.DOTALL)
    choice = re.fullmatch(r"invalid enum value '(.*)'", body, re.DOTALL)
    if unknown:
        body, remedy = f"unknown field `{printable(unknown.group(1))}`", did_you_mean(unknown.group(1), _FIELDS)
    elif missing:
        body = f"the field `{missing.group(1)}` is missing"
    elif tag and path.endswith("kind"):
        body, remedy = f"there is no kind `{printable(tag.group(1))}`", did_you_mean(tag.group(1), _KINDS)
    elif choice or tag:
        value = (choice or tag).group(1)  # type: ignore[union-attr]  # one of the two matched
        body = f"`{printable(value)}` is not one of the allowed values"
    return AmpError(Diagnostic("AMP606", f"`{printable(path)}` of `{file}`: {body}", help=remedy))


def _names(schema: Any, keys: set[str], kinds: set[str]) -> None:
    if isinstance(schema, dict):
        for name, inner in schema.get("properties", {}).items():
            keys.add(name)
            if name == "kind":
                kinds |= set(inner.get("enum", ()))
        for inner in schema.values():
            _names(inner, keys, kinds)
    elif isinstance(schema, list):
        for inner in schema:
            _names(inner, keys, kinds)


_FIELDS: set[str] = set()
_KINDS: set[str] = set()
_names(msgspec.json.schema(Manifest), _FIELDS, _KINDS)


def _shown(value: Any) -> str:
    return "none" if value is None else f"`{printable(str(value)[:40])}`"


# ----------------------------------------------------------------------------------------------- what types can't say


class _Checker:
    """Operations, the graph's own rules (names, sizes, wiring, shapes: `ampc.ir.verify`), the placement. Stops at the first mistake."""

    def __init__(self, manifest: Manifest, file: str) -> None:
        self.manifest, self.graph, self.file = manifest, manifest.graph, file

    def run(self) -> None:
        self.operations()
        self.verified()
        self.placement()
        self.rest()

    def fail(self, code: str, path: str, body: str, remedy: str | None = None) -> NoReturn:
        raise error(code, f"`{path}` of `{self.file}`: {body}", help=remedy)

    def within(self, path: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            self.fail("AMP607", path, f"{value:g} is out of range; allowed are {low:g} to {high:g}")

    def operations(self) -> None:
        """What a person could mistype, with its path and the nearest right name; the rest is the verifier's."""
        from ampc.ir.ops import OPS

        g = self.graph
        for i, n in enumerate(g.nodes):
            path = f"$.graph.nodes[{i}]"
            self.within(f"{path}.inputs", len(n.inputs), 0, MAX_PORTS)
            self.within(f"{path}.outputs", len(n.outputs), 0, MAX_PORTS)
            for j, t in enumerate(n.outputs):
                self.within(f"{path}.outputs[{j}].cols", t.cols, 0, MAX_COLUMNS)
            if isinstance(n, PPT | NPT | Loss | Metric) and n.op not in OPS:
                self.fail("AMP608", f"{path}.op", f"there is no operation `{printable(n.op)}`", did_you_mean(n.op, OPS))

    def verified(self) -> None:
        from ampc.ir.verify import verify

        try:
            verify(self.graph)
        except AmpError as e:
            first = e.diagnostics[0]
            named = re.match(r"node (\d+) \(", first.message)
            index = next((i for i, n in enumerate(self.graph.nodes) if named and n.id == int(named.group(1))), None)
            self.fail("AMP609", "$.graph" if index is None else f"$.graph.nodes[{index}]", f"{first.message} ({first.code})", first.help)

    def placement(self) -> None:
        p, target, ids = self.manifest.placement, self.manifest.target, [n.id for n in self.graph.nodes]
        names = tuple(d.name for d in target.devices)
        if p.devices != names:
            self.fail("AMP611", "$.placement.devices", "these are not the devices of `$.target`, in their order")
        lacking = [i for i in ids if i not in p.device_of]
        if lacking:
            self.fail("AMP610", "$.placement.device_of", f"node {lacking[0]} has no device")
        extra = sorted(set(p.device_of) - set(ids))
        if extra:
            self.fail("AMP610", "$.placement.device_of", f"the graph has no node {extra[0]}")
        for i, d in p.device_of.items():
            self.within(f"$.placement.device_of.{i}", d, 0, len(names) - 1)
        self.within("$.placement.bottleneck", p.bottleneck, 0, len(names) - 1)
        if not target.has(p.precision):
            self.fail("AMP611", "$.placement.precision", f"the target states no {p.precision} rate")
        self._one_device_a_layer(p)

    def _one_device_a_layer(self, p: Placement) -> None:
        """A layer's parameters belong to one worker: all nodes that use them must be there."""
        owner: dict[str, int] = {}
        for n in self.graph.nodes:
            if isinstance(n, PPT) and owner.setdefault(n.layer, p.device_of[n.id]) != p.device_of[n.id]:
                self.fail("AMP610", f"$.placement.device_of.{n.id}", f"layer `{n.layer}` is used on two devices, but one owns its parameters")

    def rest(self) -> None:
        wrong = verify_target(self.manifest.target, "$.target")
        if wrong:
            self.fail("AMP607", "$.target", wrong[0].message, wrong[0].help)
        for axis, s in self.manifest.statistics.axes.items():
            self.within(f"$.statistics.axes.{printable(axis)}.mean", s.mean, 0, 2**40)
            self.within(f"$.statistics.axes.{printable(axis)}.max", s.max, 0, 2**40)
        for field, shares in self.manifest.statistics.shares.items():
            for value, share in shares.items():
                self.within(f"$.statistics.shares.{printable(field)}.{printable(value)}", share, 0, 1)
        for source in self.manifest.sources:
            if "/" in source or "\\" in source or source in ("", ".", ".."):
                self.fail("AMP607", "$.sources", f"`{printable(source)}` is not a plain file name")


__all__ = ["FILE_NAME", "FORMAT", "VERSION", "Manifest", "from_bytes", "is_manifest_path", "json_schema", "load", "save", "to_bytes", "write_atomic"]
