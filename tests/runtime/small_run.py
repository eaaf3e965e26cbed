"""`ampc run` in this process on the small engine of `fake`, over the model Q; the fixture `small_run` (conftest) gives it a folder with data."""

from __future__ import annotations

import msgspec
import typer
from typer.testing import CliRunner, Result

from ampc.cli.run import run
from ampc.diagnostics import AmpError
from ampc.manifest import Manifest
from ampc.place import Statistics, load_target
from ampc.place.assign import Placement
from runtime.fake import Q

GRAPH = msgspec.structs.replace(
    Q, train={"epochs": 2, "optimizer": "sgd", "learning_rate": 0.01, "min_update_frequency": 1}, parameters={"hidden": 3}
)
TARGET = load_target("cpu-1")
MANIFEST = Manifest(GRAPH, Placement("balanced", ("core",), {n.id: 0 for n in Q.nodes}, instances_per_s=100.0), TARGET, Statistics(axes={}))
ROWS = [{"x": [1.0, float(i)], "y": float(i)} for i in range(6)]
"""What `data/train.jsonl` and `data/valid.jsonl` hold."""

APP = typer.Typer()
APP.command()(run)


def ampc_run(*args: str) -> Result:
    return CliRunner().invoke(APP, ["m.json", *args])


def refused_run(*args: str) -> tuple[str, str, str | None]:
    """Return code, message and help of the error that a command line ends with."""
    result = ampc_run(*args)
    assert isinstance(result.exception, AmpError), result.output
    d = result.exception.diagnostics[0]
    return d.code, d.message, d.help


def done(*args: str) -> Result:
    result = ampc_run(*args)
    assert result.exception is None, result.exception
    return result
