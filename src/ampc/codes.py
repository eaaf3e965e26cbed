"""The table of all diagnostics, for `ampc explain`: each package keeps its own codes, this one joins them.

Nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re

from ampc.diagnostics import did_you_mean, error
from ampc.explanation import Explanation

GROUPS = "1xx and 2xx models, 3xx graphs, 4xx passes, 5xx placement, 6xx manifests, 7xx runs, 8xx data, 9xx the command line"
PACKAGES = (
    "frontend", "lower", "ir", "passes", "place", "manifest", "codegen", "data", "runtime",
    "simulate", "compiler", "view", "calibrate", "cli",
)  # fmt: skip


@functools.cache
def all_codes() -> dict[str, Explanation]:
    """Return code -> explanation, in order of the codes. A package without codes of its own is passed over."""
    out: dict[str, Explanation] = {}
    for package in PACKAGES:
        for name in (f"ampc.{package}.codes", f"ampc.{package}_codes"):
            if not _exists(name):
                continue
            for code, explanation in importlib.import_module(name).CODES.items():
                assert code not in out, f"{code} is explained twice"
                out[code] = explanation
    return dict(sorted(out.items()))


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package in front of it is a module
        return False


def explain(code: str) -> Explanation:
    """Return the explanation of a code, however it is spelt (`amp203`, `203`). Raises AmpError AMP900 for an unknown one."""
    known = all_codes()
    wanted = code.strip().upper()
    wanted = wanted if wanted.startswith("AMP") else f"AMP{wanted}"
    if wanted not in known:
        near = None if re.fullmatch(r"AMP\d+", wanted) else did_you_mean(wanted, known)  # the nearest number is about something else
        raise error("AMP900", f"there is no code `{code}`", help=near or f"`ampc explain` lists all of them: {GROUPS}")
    return known[wanted]


def text(code: str) -> str:
    """Return the explanation as text: title, sentences, a wrong and a right example."""
    e = explain(code)
    wanted = next(c for c, x in all_codes().items() if x is e)
    parts = [f"{wanted}: {e.title}", "", e.text]
    for title, example in (("Wrong:", e.wrong), ("Right:", e.right)):
        if example:
            parts += ["", title, "", *(f"    {line}".rstrip() for line in example.split("\n"))]
    return "\n".join(parts)
