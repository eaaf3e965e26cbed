"""The default target: this machine's cores with this machine's memory."""

from __future__ import annotations

import pytest

from ampc.place import target


@pytest.mark.parametrize(("cores", "name"), [(1, "cpu-1"), (3, "cpu-2"), (64, "cpu-8")])
def test_the_default_target_has_the_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch, cores: int, name: str) -> None:
    monkeypatch.setattr(target, "usable_cores", lambda: cores)
    monkeypatch.setattr(target, "machine_memory", lambda: 64 << 30)
    found = target.this_machine()
    assert found.name == name
    assert {d.memory_bytes for d in found.devices} == {(64 << 30) // len(found.devices)}
    monkeypatch.setattr(target, "machine_memory", lambda: 0)
    assert target.this_machine() == target.load_target(name)


def test_the_memory_of_the_machine_is_known() -> None:
    assert target.machine_memory() > 1 << 28
