"""Functions of one shape are compiled once: their text, the cache that processes share, the processes that fill it."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampc.codegen.own import MARK, literal, own, shared
from ampc.runtime import cache, compiling, kernels
from ampc.runtime.runner import generated_for
from ampc.runtime.options import EngineOptions
from ampc.source import remember

ROOT = Path(__file__).resolve().parents[2]
DEEP = """model deep():
    instance:
        x: float[4]
        y: float
{declared}
    head = Linear(4, 1, device = "core:0")
    h = x
{used}
    loss squared(head(h), y)
"""


def deep(layers: int) -> str:
    """Return a perceptron, whose layers are on devices in turn so that each fires by itself."""
    declared = "\n".join(f'    l{i} = Linear(4, 4, device = "core:{i % 2}")' for i in range(layers))
    return DEEP.format(declared=declared, used="\n".join(f"    h = tanh(l{i}(h))" for i in range(layers)))


def functions(text: str) -> tuple[Any, ...]:
    from ampc.compiler import compile_source
    from ampc.place import load_target

    source = remember("deep.amp", text.encode(), "a program of a test")
    manifest = compile_source(source, target=load_target("cpu-2"), strategy="manual").manifest
    assert manifest is not None
    return generated_for(manifest.graph, manifest.placement, EngineOptions(workers=2)).functions


def test_a_mark_is_a_number_for_people_and_a_place_for_the_function() -> None:
    body = f"    axis{own('a', 0)}_{own('c', 161)} = I[{own('c', 161)}]\n    send(I, {own('q', 6)}, {own('c', 7)})\n"
    assert literal(body) == "    axis0_161 = I[161]\n    send(I, 6, 7)\n"
    text, numbers = shared("def kernel(I, own):\n", body)
    assert numbers == (161, 6, 7)
    assert text.splitlines()[1:4] == ["    own1 = at(I, own + 0)", "    own2 = at(I, own + 1)", "    own3 = at(I, own + 2)"]
    other = body.replace("161", "9").replace("Zq6Z", "Zq7Z")
    assert shared("def kernel(I, own):\n", other) == (text, (9, 7, 7))  # equal numbers of two kinds are two


def test_layers_of_one_shape_share_their_functions() -> None:
    few, many = functions(deep(4)), functions(deep(12))
    assert len(many) > len(few)
    assert {f.text for f in many} == {f.text for f in few}
    twins = [f for f in many if f.text == many[6].text]
    assert len(twins) > 4
    assert len({f.numbers for f in twins}) == len(twins)


def test_text_holds_no_name_and_no_number_of_its_program() -> None:
    renamed = deep(4).replace("l1", "other").replace("model deep", "model shallow").replace("    h = x\n", "    h = x\n    metric absolute_error(x[0:1], y)\n")
    before, after = functions(deep(4)), functions(renamed)
    assert len({f.text for f in before} & {f.text for f in after}) >= len({f.text for f in before}) - 2  # but for the Source and what has the metric
    assert not any(MARK.search(f.text) for f in after)


def test_as_many_processes_compile_as_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "usable_cores", lambda: 4)
    assert [compiling.processes(n) for n in (0, 1, 3, 4, 6, 100)] == [0, 0, 0, 2, 3, 4]
    monkeypatch.setattr(compiling, "usable_cores", lambda: 1)
    assert compiling.processes(100) == 0


def test_processes_that_fail_leave_the_work_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "processes", lambda n: 2)
    for child in ("raise SystemExit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
        monkeypatch.setattr(compiling, "CHILD", child)
        assert compiling.together([f"name{i}" for i in range(5000)]) == {}
    monkeypatch.setattr(compiling, "CHILD", "import sys; print(*[f'{x} 1.5' for x in sys.stdin.read().split()], sep='\\n')")
    assert compiling.together(["a", "b"]) == {"a": 1.5, "b": 1.5}

    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    assert compiling.together(["a", "b"]) == {}


def test_a_lock_is_held_by_one_process_and_freed_by_its_end(tmp_path: Path) -> None:
    hold = "from ampc.runtime import cache\nwith cache.locked('it') as mine:\n    print(mine, flush=True)\n    import time; time.sleep(60)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "AMPC_CACHE_DIR": str(cache.folder().parent)}
    other = subprocess.Popen([sys.executable, "-c", hold], env=environment, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "True\n"
    with cache.locked("it", wait=False) as mine:
        assert not mine
    other.kill()
    other.wait()
    other.stdout.close()
    with cache.locked("it", wait=False) as mine:
        assert mine


def test_without_room_for_a_lock_work_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "locks").touch()  # no folder can be made there
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    with cache.locked("it") as held:
        assert held
    with cache.locked("it", wait=False) as held:
        assert not held


# ------------------------------------------------------------------------------------------------- compiled


@pytest.mark.compiled
def test_what_is_damaged_or_cannot_be_written_is_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from numba.core.caching import IndexDataCacheFile

    from ampc.runtime.by_address import FIRING, Made

    text = "def kernel(F, I, D, XF, XI, O, w, n, own):\n    F[0] = n + own\n"
    name = kernels.name_of(text)
    function = kernels._module(name, text).kernel

    def ran(made: Made) -> float:
        F = np.zeros(4, np.float32)
        place = F.ctypes.data
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6, *[ctypes.c_int64] * 3)(made.address)(place, place, place, place, place, place, 0, 5, 2)
        return float(F[0])

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as m:
        m.setattr(IndexDataCacheFile, "_save_data", full)
        first = Made(function, FIRING)
        assert ran(first) == 7
    second = Made(function, FIRING)
    assert ran(second) == 7
    assert second.kept
    for file in Path(second.dispatcher._cache.cache_path).glob(f"{name}.*"):
        file.write_bytes(file.read_bytes()[:20])
    third = Made(function, FIRING)
    assert not third.kept
    assert ran(third) == 7


@pytest.mark.compiled
def test_no_kernel_calls_itself() -> None:
    """Kernels are made callees first; a function of a BLAS under the name of a kernel would be taken for it."""
    from ampc.runtime.by_address import KERNELS, called

    done: set[str] = set()

    def visit(name: str, callers: tuple[str, ...]) -> None:
        assert name not in callers, " calls ".join((*callers, name))
        if name not in done:
            for other in called(KERNELS[name].function):
                visit(other, (*callers, name))
            done.add(name)

    for name in KERNELS:
        visit(name, ())
    assert {"gemm", "gemm_half", "turns"} <= done
