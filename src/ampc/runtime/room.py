"""Room for instances in flight: blocks of two pools, values and counters, taken at admission by an instance's own size and given back at retirement.
And the copy of replicated layers that a cohort is dealt to, by how much each has in flight.

Only the owner of the Source comes here, so nothing is locked. A cohort's instances lie side by side; the cohorts that are in flight form a ring in
the order of their addresses, which begins with one of no size (number COHORTS). A cohort goes into the first gap from the rover on that holds it,
once around at most; the rover goes back to where room became free, so that low addresses are used again and the rest of a pool is never touched.
"""

from __future__ import annotations

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
LINES, BEGIN, ROVER, FULL, LIVE, PEAK, HIGH, FLIGHT = (m.value for m in (M.LINES, M.START, M.ROVER, M.FULL, M.LIVE, M.PEAK, M.HIGH, M.FLIGHT))
ARENA, COPY, VALUES, COUNTS = Z.ARENA.value, Z.COPY.value, A.VALUES.value, A.COUNTS.value
POOL, FLOATS, WORDS = _POOL, _FLOATS, _WORDS
BLOCK = 4
"""Words of a cohort's record in a pool: where it begins and how long it is, in lines; the next cohort by address, and the one before."""
START, LENGTH, NEXT, BEFORE = 0, 1, 2, 3


@helper
def take_block(I, pool, cohort, lines):
    """Find room in a pool for a cohort; return whether there is some."""
    blocks = pool + POOL
    rover = at(I, pool + ROVER)
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
    put(I, pool + ROVER, cohort)
    live = at(I, pool + LIVE) + lines
    put(I, pool + LIVE, live)
    put(I, pool + PEAK, max(live, at(I, pool + PEAK)))
    put(I, pool + HIGH, max(start + lines, at(I, pool + HIGH)))
    return 1


@helper
def give_block(I, pool, cohort):
    """A cohort has left a pool: its room is free."""
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


@helper
def full(I):
    """Whether no room was found and nothing has retired since."""
    return at(I, I[VALUES0] + FULL) + at(I, I[COUNTS0] + FULL)


@helper
def take_room(I, cohort, values, counts):
    """Find so many lines of values and of counters for a cohort; return whether there are."""
    if take_block(I, I[VALUES0], cohort, values) == 0:
        return 0
    if take_block(I, I[COUNTS0], cohort, counts) == 0:
        give_block(I, I[VALUES0], cohort)
        return 0
    return 1


@helper
def deal(I, lines):
    """Return the copy that a cohort of so many lines of values goes to, and count them there: of those with least in flight the next in turn."""
    copy = I[NEXT_COPY]
    if I[BY_LOAD] == 1:
        for k in range(1, I[COPIES]):
            other = (I[NEXT_COPY] + k) % I[COPIES]
            if at(I, I[LOAD0] + other) < at(I, I[LOAD0] + copy):
                copy = other
    I[NEXT_COPY] = (copy + 1) % I[COPIES]
    put(I, I[LOAD0] + copy, at(I, I[LOAD0] + copy) + lines)
    return copy


@helper
def give_room(I, cohort):
    """A cohort has retired."""
    load = I[LOAD0] + at(I, I[SLOT0] + cohort * I[GROUP] * SLOT + COPY)
    put(I, load, at(I, load) - at(I, I[VALUES0] + POOL + cohort * BLOCK + LENGTH))
    give_block(I, I[VALUES0], cohort)
    give_block(I, I[COUNTS0], cohort)


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
