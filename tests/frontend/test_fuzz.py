"""Damaged programs: whatever the text, the front end ends with a tree or with an AmpError whose places lie in the file."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.diagnostics import AmpError, render
from ampc.frontend import check, parse
from ampc.frontend.parser import grammar
from ampc.lower import lower

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.amp"))
WORDS = re.compile(r"[A-Za-z_]\w*|\d+|[ \t]+|\n|.")
MANY = 30 if os.environ.get("AMPC_TIER") != "night" else 4000


def survives(text: str) -> None:
    """Compile `text`; anything but an AmpError with places inside the text is a failure."""
    started = time.process_time()
    try:
        model = parse(text, "m.amp")
        check(model)
        lower(model, {})
    except AmpError as e:
        assert e.diagnostics and len(e.diagnostics) <= 30
        lines = re.split("\r\n|\r|\n", text)
        for d in e.diagnostics:
            render(d, {"m.amp": text})
            for label in (*([d.primary] if d.primary else []), *d.secondary):
                assert 1 <= label.span.line <= len(lines) and label.span.column >= 1
                assert label.span.column <= len(lines[label.span.line - 1].removeprefix("\ufeff")) + 1
    assert time.process_time() - started < 10


def damaged(text: str, rng: random.Random) -> str:
    """Return the text with a few words taken out, doubled, swapped or replaced by others of it."""
    words = WORDS.findall(text)
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        match rng.randrange(5):
            case 0:
                del words[i]
            case 1:
                words.insert(i, words[j])
            case 2:
                words[i], words[j] = words[j], words[i]
            case 3:
                words[i] = words[j]
            case _:
                words[i] = rng.choice(
                    ["(", ")", "[", "]", ":", "=", "==", "+=", "\n", "    ", "\t", "none", "loop", "1e9", "99999999999999999999", "é", "'", "\x00"]
                )
    return "".join(words)


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_damaged_models(path: Path) -> None:
    rng = random.Random(path.stem)
    text = path.read_text(encoding="utf-8")
    for _ in range(MANY):
        survives(damaged(text, rng))


def test_one_wrong_word_nearly_always_gives_one_error() -> None:
    rng = random.Random(1)
    counts = []
    for path in MODELS:
        text = path.read_text(encoding="utf-8")
        tokens = list(grammar().lex(text))
        for _ in range(20):
            token, other = rng.choice(tokens), rng.choice([*tokens, ""])
            try:
                check(parse(text[: token.start_pos] + other + text[token.end_pos :], "m.amp"))
            except AmpError as e:
                counts.append(len(e.diagnostics))
    assert len(counts) > 200
    assert sum(n == 1 for n in counts) > 0.95 * len(counts)


@pytest.mark.parametrize("path", MODELS[:3], ids=lambda p: p.stem)
def test_models_cut_off(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for stop in range(0, len(text), max(1, len(text) // 30)):
        survives(text[:stop])


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_any_text(text: str) -> None:
    survives(text)


TERMINALS = sorted(t.pattern.value for t in grammar().terminals if t.pattern.type == "str")


@given(st.lists(st.sampled_from([*TERMINALS, "x", "h", "1", "\n", "\n    ", "\n        "]), max_size=30).map(" ".join))
@settings(max_examples=60, deadline=None)
def test_any_words_of_the_language(text: str) -> None:
    survives("model m():\n    instance:\n        axis a\n        x: float[a]\n    h = zeros(1)\n    " + text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "[" * 90_000 + "1",
        "-" * 99_000 + "1",
        "not " * 50_000 + "x",
        "x = 1 " + "+ 1" * 45_000,
        "x" * 900_000,
        "\n" * 900_000,
        "# " + "a" * 900_000,
        "a.b" * 30_000,
        "é" * 400_000,
        "é\n" * 300_000,
    ],
    ids=["brackets", "squares", "minus", "not", "sum", "name", "lines", "comment", "dots", "letters", "lines of letters"],
)
def test_large_texts_are_refused_in_time(text: str) -> None:
    survives("model m():\n    instance:\n        x: float\n    h = " + text + "\n    loss squared(h, x)\n")


def test_limits_have_codes() -> None:
    for text, code in (("#" * 1_000_001, "AMP181"), ("x " * 100_001, "AMP182")):
        with pytest.raises(AmpError) as caught:
            parse(text)
        assert [d.code for d in caught.value.diagnostics] == [code]
