"""How errors leave the process: diagnostics as text or JSON lines on stderr, usage errors in our words, bugs as a report file.

`guarded` turns every exception into an exit code: 1 the input is wrong, 2 the command is, 3 the run failed, 4 resources, 70 a bug in ampc,
130 and 143 signals. No traceback reaches the screen.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import platform
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal, TextIO

from ampc.diagnostics import AmpError, Diagnostic, Label, printable, render

MAX_SHOWN = 20


class Terminated(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt, not for `except Exception`."""


@dataclasses.dataclass(slots=True)
class Output:
    """How this process talks: set once from the command line, read everywhere in `cli`."""

    error_format: Literal["human", "json"] = "human"
    color: Literal["auto", "always", "never"] = "auto"
    quiet: bool = False
    verbose: bool = False

    def colored(self, stream: TextIO) -> bool:
        """Whether to write colour codes to `stream`."""
        if self.color != "auto":
            return self.color == "always"
        return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


OUTPUT = Output()


def note(text: str) -> None:
    """Say something that is not a result: on stderr, unless `--quiet`."""
    if not OUTPUT.quiet:
        _to_stderr(text)


def _to_stderr(text: str) -> None:
    try:
        print(text, file=sys.stderr)
    except BrokenPipeError:  # whoever read it has gone: the work goes on
        pass


def show(e: AmpError) -> None:
    """Write the diagnostics of `e` to stderr."""
    from ampc.source import texts

    sources, shown = texts(), e.diagnostics[:MAX_SHOWN]
    for d in shown:
        _to_stderr(json.dumps(as_json(d, sources)) if OUTPUT.error_format == "json" else painted(render(d, sources)))
    more = len(e.diagnostics) - len(shown)
    if more and OUTPUT.error_format == "human":
        _to_stderr(f"... and {more} more error{'' if more == 1 else 's'}")


def painted(text: str) -> str:
    """Return a rendered diagnostic with its code, carets and remedy in colour, if stderr wants any."""
    if not OUTPUT.colored(sys.stderr):
        return text
    text = re.sub(r"\A(error\[\w+\])(.*)", "\x1b[1;31m\\1\x1b[0m\x1b[1m\\2\x1b[0m", text)
    text = re.sub(r"(?m)^( +\| +)(\^+.*)$", "\\1\x1b[1;31m\\2\x1b[0m", text)
    text = re.sub(r"(?m)^( +\| +)(-+.*)$", "\\1\x1b[1;34m\\2\x1b[0m", text)
    return re.sub(r"(?m)^( += )(help|note):", "\\1\x1b[1;36m\\2\x1b[0m:", text)


def as_json(d: Diagnostic, sources: dict[str, str]) -> dict[str, Any]:
    """Return a diagnostic for programs: one object a line with `--error-format json`."""

    def span(label: Label, primary: bool) -> dict[str, Any]:
        return {**dataclasses.asdict(label.span), "is_primary": primary, "label": label.text}

    spans = ([span(d.primary, True)] if d.primary else []) + [span(x, False) for x in d.secondary]
    return {
        "level": "error", "code": d.code, "message": d.message, "spans": spans, "notes": list(d.notes), "help": d.help,
        "rendered": render(d, sources),
    }


# ------------------------------------------------------------------------------------------------ any exception to a status


def guarded(action: Callable[[], int], argv: Sequence[str]) -> int:
    """Return the exit status of `action`, whatever happens in it."""
    previous = _on_terminate()
    try:
        status = action()
        if sys.stdout is not None:  # None: closed by whoever started us
            sys.stdout.flush()
        return status
    except AmpError as e:
        show(e)
        return e.exit_code
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except Terminated:
        return 143
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        show(AmpError(Diagnostic("AMP931", "out of memory", help="a smaller model, fewer `max_active_keys`, or less data at a time")))
        return 4
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
            return _bug(e, argv)
        where = f" (`{printable(str(e.filename))}`)" if e.filename else ""
        show(AmpError(Diagnostic("AMP932", f"the system refused: {(e.strerror or str(e)).lower()}{where}")))
        return 4
    except Exception as e:
        return _bug(e, argv)
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _on_terminate() -> Any:
    """Let SIGTERM unwind the stack, so that half-written folders are removed; returns the handler that was there."""

    def terminate(signum: int, frame: object) -> None:
        raise Terminated

    try:
        return signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not the main thread: whoever called us owns the signals
        return None


def _bug(e: Exception, argv: Sequence[str]) -> int:
    """Write a report about an exception that nobody expected; return 70."""
    report = "\n".join([
        "ampc bug report", "", f"command   ampc {' '.join(argv)}", f"ampc      {version()}", f"python    {sys.version}",
        f"platform  {platform.platform()}", "", "".join(traceback.format_exception(e)),
    ])
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="ampc-report-", suffix=".txt", delete=False) as file:
            file.write(report.encode("utf-8", "backslashreplace"))
        where = f"what happened is in `{file.name}`"
    except OSError:
        where = "no report could be written"
    said = printable(str(e).splitlines()[0]) if str(e) else "no message"
    show(AmpError(Diagnostic("AMP970", f"bug in ampc: {type(e).__name__}: {said[:200]}", notes=(where,), help="please report it, with that file")))
    return 70


def version() -> str:
    """Return the version of the installed package."""
    from importlib import metadata

    try:
        return metadata.version("ampc")
    except metadata.PackageNotFoundError:
        return "0.1.0"


__all__ = ["OUTPUT", "Output", "Terminated", "as_json", "guarded", "note", "painted", "show", "version"]
