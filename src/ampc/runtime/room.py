"""Room for instances in flight: blocks of two pools, values and counters, taken at admission by an instance's own size and given back at retirement.
And the copy of replicated layers that a cohort is dealt to, by how much each has in flight.

Only the owner of the Source comes here, so nothing is locked. A cohort's instances lie side by side; the cohorts that are in flight form a ring in
the order of their addresses. In it stand blocks of no size too, one for each copy (numbers from COHORTS on), where the copy's part of the pool
begins. A cohort goes into the first gap from its copy's rover on that holds it, once around at most; the rover goes back to where room became free
in the copy's part, so that low addresses are used again and the rest of a pool is never touched. While its part has room a copy thus works in memory
that no other one has written, and which is in the caches of its core.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ampc.codegen.layout import FLOATS as _FLOATS
from ampc.codegen.layout import POOL as _POOL
from ampc.codegen.layout import WORDS as _WORDS
from ampc.codegen.layout import A, H, M, Z
from ampc.runtime.native import at, helper, put
from ampc.runtime.tokens import COUNTERS, INSTANCE, LAYOUT, MESSAGES, POSITION, SLOT, SLOT0

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

VALUES0, COUNTS0, COHORTS, ADMITTED, DONE, SHAPE0 = (h.value for h in (H.VALUES0, H.COUNTS0, H.COHORTS, H.ADMITTED, H.DONE, H.SHAPE0))
COPIES, BY_LOAD, NEXT_COPY, LOAD0, GROUP = (h.value for h in (H.COPIES, H.BY_LOAD, H.NEXT_COPY, H.LOAD0, H.GROUP))
LINES, BEGIN, FULL, LIVE, PEAK, FLIGHT = (m.value for m in (M.LINES, M.START, M.FULL, M.LIVE, M.PEAK, M.FLIGHT))
ARENA, COPY, VALUES, COUNTS = Z.ARENA.value, Z.COPY.value, A.VALUES.value, A.COUNTS.value
POOL, FLOATS, WORDS = _POOL, _FLOATS, _WORDS
BLOCK = 4
"""Words of a cohort's record in a pool: where it begins and how long it is, in lines; the next cohort by address, and the one before."""
START, LENGTH, NEXT, BEFORE = 0, 1, 2, 3
PART = 2
"""Words of a copy behind a pool's blocks: its rover, and how many lines of its part of the pool, from where that begins, have been in use."""
ROVER, HIGH = 0, 1


def pool_words(cohorts: int, copies: int) -> int:
    """Return how many words the record of a pool has: those of `M`, the blocks, those of each copy."""
    return POOL + (cohorts + copies) * BLOCK + copies * PART


def clear_pool(I: npt.NDArray[np.int64], pool: int, largest: int) -> None:
    """Nothing is in flight. Each copy gets a part of the pool, if the parts hold a cohort of `largest` lines; else all begin at the front."""
    cohorts, copies = int(I[COHORTS]), int(I[COPIES])
    part = int(I[pool + LINES]) // copies
    I[pool + FULL : pool + FLIGHT + 1] = 0
    blocks = pool + POOL
    for copy in range(copies):
        number = cohorts + copy
        start = copy * part if part >= largest else 0
        I[blocks + number * BLOCK : blocks + (number + 1) * BLOCK] = start, 0, cohorts + (copy + 1) % copies, cohorts + (copy - 1) % copies
        words = blocks + (cohorts + copies) * BLOCK + copy * PART
        I[words + ROVER], I[words + HIGH] = number, 0


def stretch(I: npt.NDArray[np.int64], pool: int) -> int:
    """Return in how many lines of the pool instances have lain since it was cleared."""
    copies = int(I[COPIES])
    words = pool + POOL + (int(I[COHORTS]) + copies) * BLOCK
    return int(I[words + HIGH : words + copies * PART : PART].sum())


@helper
def of_copy(I, pool, copy):
    """Where a pool keeps the words of a copy."""
    return pool + POOL + (I[COHORTS] + I[COPIES]) * BLOCK + copy * PART


@helper
def take_block(I, pool, copy, cohort, lines):
    """Find room in a pool for a cohort of this copy; return whether there is some."""
    blocks = pool + POOL
    rover = at(I, of_copy(I, pool, copy) + ROVER)
    k = rover
    while True:
        this = blocks + k * BLOCK
        start = at(I, this + START) + at(I, this + LENGTH)
        after = at(I, this + NEXT)
        end = at(I, blocks + after * BLOCK + START) if after != I[COHORTS] else at(I, pool + LINES)
        if end - start >= lines:
            break
        k = after
        if k == rover:
            put(I, pool + FULL, 1)
            return 0
    block = blocks + cohort * BLOCK
    put(I, block + START, start)
    put(I, block + LENGTH, lines)
    put(I, block + NEXT, after)
    put(I, block + BEFORE, k)
    put(I, blocks + k * BLOCK + NEXT, cohort)
    put(I, blocks + after * BLOCK + BEFORE, cohort)
    put(I, of_copy(I, pool, copy) + ROVER, cohort)
    live = at(I, pool + LIVE) + lines
    put(I, pool + LIVE, live)
    put(I, pool + PEAK, max(live, at(I, pool + PEAK)))
    part = I[COPIES] - 1
    while start < at(I, blocks + (I[COHORTS] + part) * BLOCK + START):
        part -= 1
    high = of_copy(I, pool, part) + HIGH
    put(I, high, max(start + lines - at(I, blocks + (I[COHORTS] + part) * BLOCK + START), at(I, high)))
    return 1


@helper
def give_block(I, pool, copy, cohort):
    """A cohort of this copy has left a pool: its room is free."""
    blocks = pool + POOL
    block = blocks + cohort * BLOCK
    before = at(I, block + BEFORE)
    after = at(I, block + NEXT)
    put(I, blocks + before * BLOCK + NEXT, after)
    put(I, blocks + after * BLOCK + BEFORE, before)
    for other in range(I[COPIES]):
        rover = of_copy(I, pool, other) + ROVER
        if at(I, rover) == cohort:
            put(I, rover, before)
    rover = of_copy(I, pool, copy) + ROVER
    start = at(I, block + START)
    if at(I, blocks + (I[COHORTS] + copy) * BLOCK + START) <= start < at(I, blocks + at(I, rover) * BLOCK + START):
        put(I, rover, before)
    put(I, pool + LIVE, at(I, pool + LIVE) - at(I, block + LENGTH))
    put(I, pool + FULL, 0)


@helper
def full(I):
    """Whether no room was found and nothing has retired since."""
    return at(I, I[VALUES0] + FULL) + at(I, I[COUNTS0] + FULL)


@helper
def take_room(I, copy, cohort, values, counts):
    """Find so many lines of values and of counters for a cohort that goes to this copy; return whether there are."""
    if take_block(I, I[VALUES0], copy, cohort, values) == 0:
        return 0
    if take_block(I, I[COUNTS0], copy, cohort, counts) == 0:
        give_block(I, I[VALUES0], copy, cohort)
        return 0
    return 1


@helper
def deal(I):
    """Return the copy that the next cohort goes to: of those with least in flight the next in turn."""
    copy = I[NEXT_COPY]
    if I[BY_LOAD] == 1:
        for k in range(1, I[COPIES]):
            other = (I[NEXT_COPY] + k) % I[COPIES]
            if at(I, I[LOAD0] + other) < at(I, I[LOAD0] + copy):
                copy = other
    return copy


@helper
def note_dealt(I, copy, lines):
    """A cohort of so many lines of values was dealt to this copy."""
    I[NEXT_COPY] = (copy + 1) % I[COPIES]
    put(I, I[LOAD0] + copy, at(I, I[LOAD0] + copy) + lines)


@helper
def give_room(I, cohort):
    """A cohort has retired."""
    copy = at(I, I[SLOT0] + cohort * I[GROUP] * SLOT + COPY)
    load = I[LOAD0] + copy
    put(I, load, at(I, load) - at(I, I[VALUES0] + POOL + cohort * BLOCK + LENGTH))
    give_block(I, I[VALUES0], copy, cohort)
    give_block(I, I[COUNTS0], copy, cohort)


@helper
def settle_in(I, cohort, copy, slot, position, instance, values, counts):
    """Give a slot to an instance so many lines behind the beginning of its cohort; its counters are zero."""
    record = I[SLOT0] + slot * SLOT
    shape = at(I, I[SHAPE0] + instance)
    a = I[VALUES0]
    b = I[COUNTS0]
    counters = at(I, b + BEGIN) + (at(I, b + POOL + cohort * BLOCK + START) + counts) * WORDS
    put(I, record + INSTANCE, instance)
    put(I, record + POSITION, position)
    put(I, record + COPY, copy)
    put(I, record + ARENA, at(I, a + BEGIN) + (at(I, a + POOL + cohort * BLOCK + START) + values) * FLOATS)
    put(I, record + COUNTERS, counters)
    put(I, record + LAYOUT, shape)
    put(I, record + MESSAGES, 0)
    for j in range(at(I, shape + COUNTS) * WORDS):
        put(I, counters + j, 0)


@helper
def note_flight(I):
    put(I, I[VALUES0] + FLIGHT, max(at(I, I[VALUES0] + FLIGHT), I[ADMITTED] - I[DONE]))
