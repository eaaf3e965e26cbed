"""What the engine can't hold is refused with the number that is too large; the folder of compiled code is private or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import dataset, engine, graph_of, random_rows, small

import ampc.runtime.binding as binding_module
import ampc.runtime.footprint as footprint_module
from ampc import compiler
from ampc.diagnostics import AmpError, Diagnostic
from ampc.runtime import cache
from ampc.source import read_source


def refused(caught: pytest.ExceptionInfo[AmpError], code: str, exit_code: int) -> Diagnostic:
    (d,) = caught.value.diagnostics
    assert (d.code, caught.value.exit_code) == (code, exit_code)
    return d


def test_more_instances_in_flight_than_a_token_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint_module, "SLOT_BITS", 3)
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 12, 1))
    with pytest.raises(AmpError) as caught:
        engine(graph, max_active_keys=8).bind(data)
    assert refused(caught, "AMP731", 1).message == "8 instances in flight are more than 7"
    engine(graph, max_active_keys=7).bind(data)


def test_more_states_than_a_token_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint_module, "INDEX_BITS", 5)
    graph = graph_of(
        "model m():\n    instance:\n        axis token\n        x: float[token]\n    w = Linear(1, 1)\n    h = zeros(1)\n    loop t in token carry h:\n"
        "        loop s in token carry h:\n            h = w(h + x[t] * x[s])\n    output h\n"
    )
    with pytest.raises(AmpError) as caught:
        engine(graph).bind(dataset(graph, [{"x": [1.0] * 6}]))
    assert "states of one kind, more than 31" in refused(caught, "AMP732", 1).message
    engine(graph).bind(dataset(graph, [{"x": [1.0] * 4}]))


def test_more_memory_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding_module, "available_bytes", lambda: 10_000)
    graph = small("list_reduction")
    with pytest.raises(AmpError) as caught:
        engine(graph, max_active_keys=2).bind(dataset(graph, random_rows(graph, 3, 1)))
    d = refused(caught, "AMP733", 4)
    assert "for 2 instances in flight, and 0.0 GiB are free" in d.message and "lower `max_active_keys` (now 2)" in (d.help or "")


def test_a_folder_of_compiled_code_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.folder.cache_clear()
    try:
        open_to_all = tmp_path / "shared"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        monkeypatch.setenv("AMPC_CACHE_DIR", str(open_to_all))
        with pytest.raises(AmpError) as caught:
            cache.folder()
        assert "can be written by others" in refused(caught, "AMP790", 4).message
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("AMPC_CACHE_DIR", str(tmp_path / "file" / "below"))
        with pytest.raises(AmpError) as caught:
            cache.folder()
        assert "can't be used: not a directory" in refused(caught, "AMP790", 4).message.lower()
        monkeypatch.setenv("AMPC_CACHE_DIR", str(tmp_path / "mine"))
        assert cache.folder().parent == tmp_path / "mine" and (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    finally:
        cache.folder.cache_clear()


def test_a_stage_that_there_isnt() -> None:
    with pytest.raises(AmpError) as caught:
        compiler.compile_source(read_source("list_reduction"), stop_after="pases")
    assert refused(caught, "AMP913", 1).help == "did you mean `passes`?"
