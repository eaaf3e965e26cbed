"""What a run shows while it works: a bar on a terminal, plain lines elsewhere, nothing that a log could not hold."""

from __future__ import annotations

import io

import pytest

from ampc.runtime.events import Epoch, Note, Phase, Progress
from ampc.runtime.progress import Display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(display: Display) -> None:
    with display:
        display(Phase("train", 0, 2, 10))
        for i in range(1, 11):
            display(Progress(i, 10, 0.5 * i, 3, 0.1 * i, 1.5))
        display(Note("row \x1b[31m left out"))
        display(Epoch(1, 0.5, {"accuracy": None}, {"loss": 0.25}, {}, 0.1, 10, 0, 1.0, 0.5, 1.5, 10.0, {"w": 1}, {"w": 1.5}, True))


def test_plain_display_is_one_line_an_epoch() -> None:
    stream = io.StringIO()
    show(Display(stream=stream))
    assert stream.getvalue() == (
        "note: row \\x1b[31m left out\n"
        "epoch 1/2  loss 0.5     accuracy undefined  | valid  loss 0.25    |        10 instances/s    1.5 s  staleness 1.5  best\n"
    )  # fmt: skip


@pytest.mark.parametrize("term", ["dumb", ""])
def test_terminal_that_cant_move_its_cursor_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal()
    show(Display(stream=stream))
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    show(Display(stream=stream))
    assert "3 in flight" in stream.getvalue() and "10/10" in stream.getvalue() and "epoch 1/2  loss 0.5" in stream.getvalue()


def test_quiet_shows_notes_only() -> None:
    stream = io.StringIO()
    show(Display(stream=stream, quiet=True))
    assert stream.getvalue() == "note: row \\x1b[31m left out\n"


def test_a_reader_that_has_gone_doesnt_stop_the_run() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    show(Display(stream=Closed()))
