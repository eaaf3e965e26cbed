"""Room for instances in flight: blocks of one pool, taken at admission by an instance's own size and given back at retirement.

Only the owner of the Source comes here, so nothing is locked. A cohort's instances lie side by side; the cohorts that are in flight form a ring in
the order of their addresses, which begins with one of no size (number COHORTS). A cohort goes into the first gap from the rover on that holds it,
once around at most; the rover goes back to where room became free, so that low addresses are used again and the rest of the pool is never touched.
"""

from __future__ import annotations

from numba import njit

from ampc.codegen.layout import POOL as _POOL
from ampc.codegen.layout import UNIT as _UNIT
from ampc.codegen.layout import A, H, M, Z
from ampc.runtime.native import KERNEL, at, put
from ampc.runtime.tokens import COUNTERS, INSTANCE, LAYOUT, POSITION, SLOT, SLOT0

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

POOL0, COHORTS, ADMITTED, DONE, SHAPE0 = H.POOL0.value, H.COHORTS.value, H.ADMITTED.value, H.DONE.value, H.SHAPE0.value
UNITS, RATIO, ARENA0, COUNT0, ROVER, FULL, LIVE, PEAK, HIGH, FLIGHT = (
    m.value for m in (M.UNITS, M.RATIO, M.ARENA0, M.COUNT0, M.ROVER, M.FULL, M.LIVE, M.PEAK, M.HIGH, M.FLIGHT)
)
ARENA, DEAL, SIZE, WORDS = Z.ARENA.value, Z.DEAL.value, A.UNITS.value, A.WORDS.value
POOL, UNIT = _POOL, _UNIT
RATIO_BITS = 20
BLOCK = 4
"""Words of a cohort's record: where it begins and how large it is, in units; the next cohort by address, and the one before."""
START, LENGTH, NEXT, BEFORE = 0, 1, 2, 3


@njit(**KERNEL)
def take_room(I, cohort, units):
    """Find room for a cohort; return whether there is some."""
    pool = I[POOL0]
    blocks = pool + POOL
    rover = at(I, pool + ROVER)
    k = rover
    while True:
        this = blocks + k * BLOCK
        start = at(I, this + START) + at(I, this + LENGTH)
        after = at(I, this + NEXT)
        end = at(I, blocks + after * BLOCK + START) if after != I[COHORTS] else at(I, pool + UNITS)
        if end - start >= units:
            break
        k = after
        if k == rover:
            put(I, pool + FULL, 1)
            return 0
    block = blocks + cohort * BLOCK
    put(I, block + START, start)
    put(I, block + LENGTH, units)
    put(I, block + NEXT, after)
    put(I, block + BEFORE, k)
    put(I, blocks + k * BLOCK + NEXT, cohort)
    put(I, blocks + after * BLOCK + BEFORE, cohort)
    put(I, pool + ROVER, cohort)
    live = at(I, pool + LIVE) + units
    put(I, pool + LIVE, live)
    put(I, pool + PEAK, max(live, at(I, pool + PEAK)))
    put(I, pool + HIGH, max(start + units, at(I, pool + HIGH)))
    return 1


@njit(**KERNEL)
def give_room(I, cohort):
    """A cohort has retired: its room is free."""
    pool = I[POOL0]
    blocks = pool + POOL
    block = blocks + cohort * BLOCK
    before = at(I, block + BEFORE)
    after = at(I, block + NEXT)
    put(I, blocks + before * BLOCK + NEXT, after)
    put(I, blocks + after * BLOCK + BEFORE, before)
    rover = at(I, pool + ROVER)
    if rover == cohort or at(I, block + START) < at(I, blocks + rover * BLOCK + START):
        put(I, pool + ROVER, before)
    put(I, pool + LIVE, at(I, pool + LIVE) - at(I, block + LENGTH))
    put(I, pool + FULL, 0)


@njit(**KERNEL)
def size_of(I, instance):
    """Units of the pool that an instance takes."""
    return at(I, at(I, I[SHAPE0] + instance) + SIZE)


@njit(**KERNEL)
def settle_in(I, slot, instance, position, start):
    """Give a slot to an instance whose room begins at unit `start`, with counters of zero; return where the next one's room begins."""
    pool = I[POOL0]
    record = I[SLOT0] + slot * SLOT
    shape = at(I, I[SHAPE0] + instance)
    counters = at(I, pool + COUNT0) + (start * at(I, pool + RATIO) >> RATIO_BITS)
    put(I, record + INSTANCE, instance)
    put(I, record + POSITION, position)
    put(I, record + DEAL, position)
    put(I, record + ARENA, at(I, pool + ARENA0) + start * UNIT)
    put(I, record + COUNTERS, counters)
    put(I, record + LAYOUT, shape)
    for j in range(at(I, shape + WORDS)):
        put(I, counters + j, 0)
    return start + at(I, shape + SIZE)


@njit(**KERNEL)
def note_flight(I):
    pool = I[POOL0]
    put(I, pool + FLIGHT, max(at(I, pool + FLIGHT), I[ADMITTED] - I[DONE]))
