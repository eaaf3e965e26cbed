"""How fast a program trains or predicts on this machine: throughput by setting, latency, engine overhead, share of the GEMM peak, memory.

`measure` measures, `report` says it. Nothing here is used by a run, and nothing that is measured is kept: weights move, but nobody sees them.
"""

from __future__ import annotations
