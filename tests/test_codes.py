"""Every diagnostic's code is explained, once, and belongs to its layer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ampc.codes
from ampc.codes import all_codes, explain, text
from ampc.diagnostics import AmpError

SOURCE = Path(ampc.codes.__file__).parent


def raised() -> dict[str, set[str]]:
    """Return code -> the packages whose source mentions it."""
    out: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        if not file.stem.startswith("codes") or file.parent == SOURCE:
            for code in re.findall(r'"(AMP\d{3})"', file.read_text(encoding="utf-8")):
                out.setdefault(code, set()).add(file.relative_to(SOURCE).parts[0].removesuffix(".py"))
    return out


def test_every_code_is_explained() -> None:
    assert sorted(set(raised()) - set(all_codes())) == []


def test_every_explanation_is_of_a_code_that_exists() -> None:
    assert sorted(set(all_codes()) - set(raised())) == []


def test_explanations_are_complete() -> None:
    for code, e in all_codes().items():
        assert re.fullmatch(r"AMP[1-9]\d{2}", code)
        assert e.title and e.text.endswith((".", "`", ")", "?")), code
        assert bool(e.wrong) == bool(e.right), code


def test_a_code_is_found_however_it_is_spelt() -> None:
    assert explain("amp203") is explain("203") is explain(" AMP203 ") is all_codes()["AMP203"]
    assert text("203").startswith("AMP203: a name hides another\n\n")


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(AmpError) as caught:
        explain("AMP20Q")
    (d,) = caught.value.diagnostics
    assert (d.code, d.message) == ("AMP900", "there is no code `AMP20Q`")
    assert d.help is not None and d.help.startswith("did you mean `AMP")
