"""What a predictor calls for its one instance: a run forward in which nothing is sent back, and the lists of who names an element."""

from __future__ import annotations

import numpy as np
from numba import types

from ampc.runtime.native import JIT, at, flush_denormals, helper, kernel, put, restore_denormals
from ampc.runtime.result import UNWRITTEN
from ampc.runtime.room import give_room
from ampc.runtime.tokens import ERROR, HEAD, QUEUE, QUEUE0, SEGMENTS, TAIL
from ampc.runtime.worker import ADMITTED, DONE, IDLE, ROWS, admit_cohort, fire, take

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@helper
def forward_queue(I):
    """The forward queue with most waiting rows, or -1: for one worker that has all segments."""
    best = -1
    heaviest = 0
    for q in range(0, 2 * I[SEGMENTS], 2):
        c = I[QUEUE0] + q * QUEUE
        weight = (at(I, c + TAIL) - at(I, c + HEAD)) * at(I, c + ROWS)
        if weight > heaviest:
            heaviest = weight
            best = q
    return best


@kernel(returns=types.int64)
def answer(F, I, D, XF, XI, O, w):
    """Run the one instance of the order forward, on worker w alone, and forget it: nothing is sent back. Return 0, or the fault (see `H.ERROR`)."""
    control = flush_denormals()
    I[ADMITTED] = 0
    I[DONE] = 0
    for q in range(2 * I[SEGMENTS]):  # answers of the instance before, which nobody took
        c = I[QUEUE0] + q * QUEUE
        put(I, c + HEAD, at(I, c + TAIL))
    admit_cohort(I, w)
    q = forward_queue(I)
    while q >= 0 and I[ERROR] == 0:
        fire(F, I, D, XF, XI, O, w, q, take(I, D, w, q))
        q = forward_queue(I)
    give_room(I, 0)
    I[IDLE] += 1
    restore_denormals(control)
    return I[ERROR]


NOTHING = np.int32(UNWRITTEN)

if JIT:
    from ampc.runtime.compiled import doubles_at, float_from_bits, floats_at, words_at

    @kernel(returns=types.int64)
    def answer_at(G):
        """`answer`, with its arguments (places of memory, then numbers) in the words of G, and the length of O, which is marked as unwritten before.

        Python takes a tenth of a microsecond to pass an argument.
        """
        O = floats_at(G, 5)
        nothing = float_from_bits(NOTHING)
        for k in range(at(G, 7)):
            put(O, k, nothing)
        return answer(floats_at(G, 0), words_at(G, 1), doubles_at(G, 2), floats_at(G, 3), words_at(G, 4), O, at(G, 6))


@kernel()
def invert(XI, values, n, named, starts, listed):
    """List who names an element: XI[listed + k], k from XI[starts + b] to XI[starts + b + 1], are the places of b among the n `values`.

    b is one of `named` elements; a value of -1 names none.
    """
    for b in range(named + 1):
        put(XI, starts + b, 0)
    for e in range(n):
        b = at(XI, values + e)
        if b >= 0:
            put(XI, starts + b, at(XI, starts + b) + 1)
    total = 0
    for b in range(named + 1):
        total += at(XI, starts + b)
        put(XI, starts + b, total)
    for k in range(n):  # from the end, so that places come in order; a start is an end until its elements are listed
        e = n - 1 - k
        b = at(XI, values + e)
        if b >= 0:
            place = at(XI, starts + b) - 1
            put(XI, starts + b, place)
            put(XI, listed + place, e)
