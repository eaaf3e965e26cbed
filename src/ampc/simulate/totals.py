"""What a simulated pass adds up to, whether a log of its events was kept or not."""

from __future__ import annotations

import dataclasses

import numpy as np

from ampc.simulate.core import Floats, Integers


@dataclasses.dataclass(frozen=True)
class Totals:
    """Of one pass in virtual time. `devices`: all of the target, idle ones too; `links`: those that carried something.

    busy_s: [devices, 4] seconds of forward and backward firings, of updates, and of standing still after a failure. fired: [devices] firings.
    link_busy_s, link_bytes, link_messages: [links]. events: handled by the simulation; messages: between devices.
    """

    seconds: float
    instances: int
    devices: tuple[str, ...]
    busy_s: Floats
    fired: Integers
    links: tuple[str, ...]
    link_busy_s: Floats
    link_bytes: Floats
    link_messages: Integers
    events: int
    messages: int
    failures: int

    @property
    def instances_per_s(self) -> float:
        """Instances a virtual second; 0 for an empty pass."""
        return self.instances / self.seconds if self.seconds > 0 else 0.0

    @property
    def utilisation(self) -> Floats:
        """Return [devices]: share of the pass in which each fired or updated."""
        return self.busy_s[:, :3].sum(axis=1) / self.seconds if self.seconds > 0 else np.zeros(len(self.devices))

    @property
    def link_utilisation(self) -> Floats:
        """Return [links]: share of the pass in which each carried bytes."""
        return self.link_busy_s / self.seconds if self.seconds > 0 else np.zeros(len(self.links))


__all__ = ["Totals"]
