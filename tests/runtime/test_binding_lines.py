"""What different workers write lies on different cache lines."""

from __future__ import annotations

import numpy as np
import pytest

from ampc.codegen.layout import HYPER, LAYER, SEG, H, R
from ampc.runtime.binding import zeros
from ampc.runtime.tokens import QUEUE, RING
from tests.support import dataset, engine, random_rows, small

WORDS = 8
"""A cache line's, of 8 bytes."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_arrays_begin_on_a_line(size: int, dtype: type) -> None:
    made = zeros(size, dtype)
    assert made.shape == (size,) and made.dtype == dtype and made.flags.c_contiguous and not made.any()
    assert made.ctypes.data % 64 == 0


def test_records_and_ends_of_rings() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 12, seed=1))
    e = engine(graph, workers=2, driver="step", max_active_keys=3, min_update_frequency=4)
    e.run(data, np.arange(12), train=True)
    b = e._binding
    assert b is not None
    assert all(x.ctypes.data % 64 == 0 for x in (b.I, b.D, e._F))
    assert not any(b.I[word] % WORDS for word in (H.SEG0, H.LAYER0, H.QUEUE0, H.RING0, H.WORK0, H.HYPER0, H.STATS))
    assert not any(size % WORDS for size in (SEG, LAYER, HYPER, QUEUE, RING, b.I[H.WORK_STRIDE]))
    # A reader of TAIL and a writer of the other words, and the two ends, each have lines of their own.
    assert len({word // WORDS for word in (R.BUFFER, R.TAIL, R.HEAD, R.STAGED)}) == 4 and R.SEEN_HEAD // WORDS == R.STAGED // WORDS
    written = {H.STOP, H.DONE, H.ADMITTED, H.IDLE, H.IN_BATCH, H.NEXT_COPY, H.ACKS, H.NONFINITE}
    assert not {word // WORDS for word in written} & {word // WORDS for word in H if word >= H.TRAIN}
