"""What a layer does with its gradients: counts them, measures their staleness, and updates its own parameters.

Each layer belongs to one worker, which alone calls these for it. The accumulator weighs instances: see `docs/runtime.md`.
Adam and AdamW follow Kingma and Ba (arXiv 1412.6980) and Loshchilov and Hutter (arXiv 1711.05101); the staleness policy `corrected` is the
discrepancy correction of PipeMare (Yang et al., arXiv 1910.05124), with the staleness that is measured in place of a pipeline's depth.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from ampc.codegen.layout import CORRECTED as _CORRECTED
from ampc.codegen.layout import FOLD as _FOLD
from ampc.codegen.layout import HYPER as _HYPER
from ampc.codegen.layout import LAYER as _LAYER
from ampc.codegen.layout import STALENESS_BINS as _BINS
from ampc.codegen.layout import H, L, P, T
from ampc.runtime.half import to_half
from ampc.runtime.log import begin_firing, begin_update, end_firing, end_update
from ampc.runtime.native import F0, F1, at, copy, gemm, kernel, put
from ampc.runtime.rows import add, add_row_sum, lookup, repeat_row, scatter_add, zero
from ampc.runtime.tokens import COUNTERS, SLOT, SLOT0, counters

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

WORK0, WORK_STRIDE, CAP, LAYER0, LAYERS, HYPER0, WEIGHT0, UPDATE, SYNC = (
    h.value for h in (H.WORK0, H.WORK_STRIDE, H.CAP, H.LAYER0, H.LAYERS, H.HYPER0, H.WEIGHT0, H.UPDATE, H.SYNC)
)
STASH, STASH_DEPTH, APPLIED, HALF = L.STASH.value, L.STASH_DEPTH.value, L.APPLIED.value, L.HALF.value
VERSION, PARAM, SIZE, GRAD, MOMENT1, MOMENT2, OPTIMIZER, STEP, HISTOGRAM, MARKS, COLS, COUNTER, UPDATES = (
    x.value
    for x in (L.VERSION, L.PARAM, L.SIZE, L.GRAD, L.MOMENT1, L.MOMENT2, L.OPTIMIZER, L.STEP, L.HISTOGRAM, L.MARKS, L.COLS, L.COUNTER, L.UPDATES)
)
WEIGHT, FREQUENCY, RATE, MOMENTUM, BETA1, BETA2, EPSILON, DECAY, L2, CLIP_NORM, CLIP_VALUE, STALE = (
    p.value for p in (P.WEIGHT, P.FREQUENCY, P.RATE, P.MOMENTUM, P.BETA1, P.BETA2, P.EPSILON, P.DECAY, P.L2, P.CLIP_NORM, P.CLIP_VALUE, P.STALE)
)
LAST = P.LAST.value
FOLDS, FOLD0, LOG0, SEGMENTS, OWNER = H.FOLDS.value, H.FOLD0.value, H.LOG0.value, H.SEGMENTS.value, L.OWNER.value
TABLE, FOLD_W, BIAS, GRAD_TABLE, GRAD_W, GRAD_BIAS, PRODUCT, GRAD_PRODUCT = (
    t.value for t in (T.TABLE, T.W, T.BIAS, T.GRAD_TABLE, T.GRAD_W, T.GRAD_BIAS, T.PRODUCT, T.GRAD_PRODUCT)
)
FOLD_ROWS, INNER, FOLD_COLS, TABLE_LAYER, LINEAR_LAYER, TABLE_VERSION, LINEAR_VERSION, DIRTY = (
    t.value for t in (T.ROWS, T.INNER, T.COLS, T.TABLE_LAYER, T.LINEAR_LAYER, T.TABLE_VERSION, T.LINEAR_VERSION, T.DIRTY)
)
LAYER, HYPER, BINS, FOLD, CORRECTED = _LAYER, _HYPER, _BINS, _FOLD, _CORRECTED
FORGETTING = 0.135
"""What remains of an old update in the drift after as many updates as gradients are stale (PipeMare's D, about e^-2)."""
WHOLE = 1 << 32
"""An instance's whole weight for a layer, in the counters."""
NEARLY = 1 - 1e-6
"""Weights are sums of fractions 1/n; what is this near to the frequency has reached it."""


@kernel()
def note_versions(I, w, n, layer, segment, word):
    """Remember for each token the layer's version at its forward firing."""
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    version = at(I, I[LAYER0] + layer * LAYER + VERSION)
    for i in range(n):
        put(I, counters(I, at(I, block + i), segment, at(I, block + cap + i)) + word, version)


@kernel()
def count_forward(I, D, w, n, layer):
    """Count an instance's firings for a layer where their number is not known beforehand."""
    counter = at(I, I[LAYER0] + layer * LAYER + COUNTER)
    if counter < 0:
        return
    block = I[WORK0] + w * I[WORK_STRIDE]
    for i in range(n):
        p = at(I, I[SLOT0] + at(I, block + i) * SLOT + COUNTERS) + counter
        put(I, p, at(I, p) + 1)


@kernel(returns=types.float64)
def weight_of(I, D, layer, slot, inst):
    """How much of instance `inst` one backward firing for `layer` stands for: 1 / (its firings), so far as they are known; 0 if none has a row."""
    share = at(D, I[WEIGHT0] + inst * I[LAYERS] + layer)
    counter = at(I, I[LAYER0] + layer * LAYER + COUNTER)
    if counter < 0:
        return share
    return share / max(1, at(I, at(I, I[SLOT0] + slot * SLOT + COUNTERS) + counter))


@kernel(returns=types.float64)
def claim(I, D, layer, slot, inst):
    """The weight of one backward firing, where it is counted for good.

    A loss may answer before an instance has made all its forward firings; what was claimed too much then is not claimed again, so that an
    instance adds up to one whatever the order.
    """
    counter = at(I, I[LAYER0] + layer * LAYER + COUNTER)
    if counter < 0:
        return weight_of(I, D, layer, slot, inst)
    p = at(I, I[SLOT0] + slot * SLOT + COUNTERS) + counter
    answered = at(I, p + 1) + 1
    put(I, p + 1, answered)
    due = answered * WHOLE // max(1, at(I, p))
    more = due - at(I, p + 2)
    if more <= 0:
        return 0.0
    put(I, p + 2, due)
    return at(D, I[WEIGHT0] + inst * I[LAYERS] + layer) * more / WHOLE


@kernel()
def settle(F, I, D, w, n, layer, segment, word):
    """After a backward firing: count its weight and its staleness; update the layer if it has gathered enough."""
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    record = I[LAYER0] + layer * LAYER
    hyper = I[HYPER0] + layer * HYPER
    version = at(I, record + VERSION)
    histogram = at(I, record + HISTOGRAM)
    total = 0.0
    age = 0
    for i in range(n):
        slot = at(I, block + i)
        stale = version - at(I, counters(I, slot, segment, at(I, block + cap + i)) + word)
        p = histogram + (stale if stale < BINS else BINS - 1)
        put(I, p, at(I, p) + 1)
        age += stale
        total += claim(I, D, layer, slot, at(I, block + 2 * cap + i))
    put(D, hyper + WEIGHT, at(D, hyper + WEIGHT) + total)
    put(D, hyper + STALE, 0.9 * at(D, hyper + STALE) + 0.1 * age / n)
    if I[UPDATE] == 1 and I[SYNC] == 0 and at(D, hyper + WEIGHT) >= at(D, hyper + FREQUENCY) * NEARLY:
        update(F, I, D, layer, at(D, hyper + WEIGHT))


@kernel()
def fold_forward(F, I, args, record, y, ids, m, more):
    """y = (y if more) + PRODUCT[ids]; the product is made anew if one of its layers has changed."""
    table = at(I, I[LAYER0] + at(I, record + TABLE_LAYER) * LAYER + VERSION)
    linear = at(I, I[LAYER0] + at(I, record + LINEAR_LAYER) * LAYER + VERSION)
    product = at(I, record + PRODUCT)
    cols = at(I, record + FOLD_COLS)
    if table != at(I, record + TABLE_VERSION) or linear != at(I, record + LINEAR_VERSION):
        rows = at(I, record + FOLD_ROWS)
        inner = at(I, record + INNER)
        bias = at(I, record + BIAS)
        if bias >= 0:
            repeat_row(F, product, bias, rows, cols)
        start = F1 if bias >= 0 else F0
        gemm(F, I, args, 0, 0, rows, cols, inner, F1, at(I, record + TABLE), inner, at(I, record + FOLD_W), cols, start, product, cols)
        put(I, record + TABLE_VERSION, table)
        put(I, record + LINEAR_VERSION, linear)
    if more:
        for r in range(m):
            e = at(I, ids + r)
            if e >= 0:
                add(F, y + r * cols, product + e * cols, cols)
    else:
        lookup(F, I, y, product, ids, m, cols)
        bias = at(I, record + BIAS)
        if bias >= 0:
            for r in range(m):
                if at(I, ids + r) < 0:  # none looks up zeros, and still gets the bias
                    copy(F, y + r * cols, F, bias, cols)


@kernel()
def fold_backward(F, I, record, g, ids, m):
    """GRAD_PRODUCT[ids] += g"""
    cols = at(I, record + FOLD_COLS)
    put(I, record + DIRTY, 1)
    scatter_add(F, I, at(I, record + GRAD_PRODUCT), ids, g, m, cols)
    gb = at(I, record + GRAD_BIAS)
    if gb >= 0:
        for r in range(m):
            if at(I, ids + r) < 0:
                add(F, gb, g + r * cols, cols)


@kernel()
def unfold(F, I, layer):
    """Take the gradients of folded tables apart that layer `layer` has a part in (-1: all). PRODUCT's layers have not changed since."""
    for k in range(I[FOLDS]):
        record = I[FOLD0] + k * FOLD
        a = at(I, record + TABLE_LAYER)
        b = at(I, record + LINEAR_LAYER)
        if at(I, record + DIRTY) == 0 or (layer >= 0 and layer != a and layer != b):
            continue
        args = I[WORK0] + at(I, I[LAYER0] + a * LAYER + OWNER) * I[WORK_STRIDE] + 4 * I[CAP]
        rows = at(I, record + FOLD_ROWS)
        inner = at(I, record + INNER)
        cols = at(I, record + FOLD_COLS)
        g = at(I, record + GRAD_PRODUCT)
        gemm(F, I, args, 0, 1, rows, inner, cols, F1, g, cols, at(I, record + FOLD_W), cols, F1, at(I, record + GRAD_TABLE), inner)
        gemm(F, I, args, 1, 0, inner, cols, rows, F1, at(I, record + TABLE), inner, g, cols, F1, at(I, record + GRAD_W), cols)
        if at(I, record + GRAD_BIAS) >= 0:
            add_row_sum(F, at(I, record + GRAD_BIAS), g, rows, cols)
        zero(F, g, rows * cols)
        put(I, record + DIRTY, 0)


@kernel(returns=types.int64)
def weights_at(I, w, layer, segment, word):
    """Where the parameters lie that a backward firing is to use: those of now, or (stashed) those of its tokens' forward.

    All tokens of a firing have one version then (`worker.same_version`). What is older than the stash gets the oldest version there.
    """
    record = I[LAYER0] + layer * LAYER
    depth = at(I, record + STASH_DEPTH)
    if depth == 0:
        return at(I, record + PARAM)
    if depth == CORRECTED:
        return at(I, record + STASH)
    block = I[WORK0] + w * I[WORK_STRIDE]
    version = at(I, counters(I, at(I, block), segment, at(I, block + I[CAP])) + word)
    now = at(I, record + VERSION)
    if version == now:
        return at(I, record + PARAM)
    oldest = now - depth
    return at(I, record + STASH) + (version if version > oldest else oldest) % depth * at(I, record + SIZE)


@kernel(returns=types.float32)
def direct(I, D, w, n, layer, rows, size):
    """The rate at which this firing may add its weight gradient straight to the first `size` parameters; 0 if it has to accumulate it.

    Plain SGD with an empty accumulator that this firing fills: w -= rate * x' dy is then one matrix product, and the gradient need not
    be written, read and cleared. Few rows are accumulated all the same: their product is no bottleneck, and its rounding that of the rule.
    """
    record = I[LAYER0] + layer * LAYER
    hyper = I[HYPER0] + layer * HYPER
    if I[UPDATE] == 0 or I[SYNC] == 1 or at(I, record + OPTIMIZER) != 0 or rows < 32 or at(I, record + STASH_DEPTH) != 0:
        return F0
    if at(D, hyper + WEIGHT) > 0.0 or at(D, hyper + DECAY) > 0.0 or at(D, hyper + L2) > 0.0:
        return F0
    if at(D, hyper + CLIP_NORM) > 0.0 or at(D, hyper + CLIP_VALUE) > 0.0:
        return F0
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    total = 0.0
    for i in range(n):
        total += weight_of(I, D, layer, at(I, block + i), at(I, block + 2 * cap + i))
    if total < at(D, hyper + FREQUENCY) * NEARLY:
        return F0
    put(I, record + APPLIED, size)
    return np.float32(at(D, hyper + RATE) / total)


@kernel(doubles="weight")
def update(F, I, D, layer, weight):
    """Apply the layer's accumulated gradient divided by `weight`, clear the accumulator, count a version."""
    record = I[LAYER0] + layer * LAYER
    if I[LOG0] > 0:
        begin_update(I, at(I, record + OWNER))
    unfold(F, I, layer)
    depth = at(I, record + STASH_DEPTH)
    if depth != 0:
        size = at(I, record + SIZE)
        place = at(I, record + VERSION) % depth if depth > 0 else 0
        copy(F, at(I, record + STASH) + place * size, F, at(I, record + PARAM), size)
    hyper = I[HYPER0] + layer * HYPER
    put(I, record + STEP, at(I, record + STEP) + 1)
    marks = at(I, record + MARKS)
    scale = np.float32(1.0 / weight)
    w = at(I, record + PARAM)
    g = at(I, record + GRAD)
    if marks > 0:
        cols = at(I, record + COLS)
        touched = at(I, marks)
        room = at(I, marks + 1)
        if at(D, hyper + CLIP_NORM) > 0.0 or at(D, hyper + CLIP_VALUE) > 0.0 or at(D, hyper + L2) > 0.0:
            norm = 0.0
            for k in range(touched):
                row = at(I, marks + 2 + k) * cols
                norm += shape(F, D, hyper, w + row, g + row, cols, scale)
            scale = clip(D, hyper, norm, F1)
        for k in range(touched):
            row = at(I, marks + 2 + k)
            apply(F, I, D, record, hyper, row * cols, cols, scale)
            put(I, marks + 2 + room + row, 0)
        put(I, marks, 0)
    else:
        size = at(I, record + SIZE)
        if at(D, hyper + CLIP_NORM) > 0.0 or at(D, hyper + CLIP_VALUE) > 0.0 or at(D, hyper + L2) > 0.0:
            scale = clip(D, hyper, shape(F, D, hyper, w, g, size, scale), F1)
        done = at(I, record + APPLIED)
        apply(F, I, D, record, hyper, done, size - done, scale)
        put(I, record + APPLIED, 0)
    if at(I, record + HALF) > 0:
        to_half(F, at(I, record + HALF), w, at(I, record + SIZE))
    if depth == CORRECTED:
        correct(F, at(I, record + STASH), at(I, record + PARAM), at(I, record + SIZE), at(D, hyper + STALE))
    put(D, hyper + WEIGHT, 0.0)
    put(D, hyper + LAST, weight)
    put(I, record + VERSION, at(I, record + VERSION) + 1)
    put(I, record + UPDATES, at(I, record + UPDATES) + 1)
    if I[LOG0] > 0:
        end_update(I, at(I, record + OWNER))


@kernel(doubles="stale")
def correct(F, old, w, size, stale):
    """Replace the parameters before an update, at `old`, by those that a backward is to use: w - stale * drift.

    The drift, after them, is a moving average of updates that forgets within about as many as gradients are stale.
    """
    keep = np.float32(FORGETTING ** (1.0 / stale)) if stale > 0.01 else F0
    back = np.float32(stale)
    drift = old + size
    for i in range(size):
        v = at(F, w + i)
        d = keep * at(F, drift + i) + (F1 - keep) * (v - at(F, old + i))
        put(F, drift + i, d)
        put(F, old + i, v - back * d)


@kernel(floats="scale", returns=types.float64)
def shape(F, D, hyper, w, g, size, scale):
    """Scale a gradient in place, add L2, clip its values; return the sum of squares."""
    l2 = np.float32(at(D, hyper + L2))
    limit = np.float32(at(D, hyper + CLIP_VALUE))
    total = 0.0
    for i in range(size):
        v = at(F, g + i) * scale + l2 * at(F, w + i)
        if limit > F0:
            v = limit if v > limit else (-limit if v < -limit else v)
        put(F, g + i, v)
        total += np.float64(v) * np.float64(v)
    return total


@kernel(floats="scale", doubles="squares", returns=types.float32)
def clip(D, hyper, squares, scale):
    """The factor that brings a gradient's norm down to CLIP_NORM."""
    limit = at(D, hyper + CLIP_NORM)
    norm = math.sqrt(squares)
    return np.float32(limit / norm) if limit > 0.0 and norm > limit else scale


@kernel(floats="scale")
def apply(F, I, D, record, hyper, first, size, scale):
    """Update `size` parameters from `first` on with their gradients times `scale`; clear the gradients."""
    w = at(I, record + PARAM) + first
    g = at(I, record + GRAD) + first
    kind = at(I, record + OPTIMIZER)
    rate = np.float32(at(D, hyper + RATE))
    decay = np.float32(at(D, hyper + RATE) * at(D, hyper + DECAY))
    if kind == 0:
        for i in range(size):
            v = at(F, w + i)
            put(F, w + i, v - rate * (at(F, g + i) * scale) - decay * v)
            put(F, g + i, F0)
    elif kind == 1:
        m = at(I, record + MOMENT1) + first
        mu = np.float32(at(D, hyper + MOMENTUM))
        for i in range(size):
            v = at(F, w + i)
            u = mu * at(F, m + i) + at(F, g + i) * scale
            put(F, m + i, u)
            put(F, w + i, v - rate * u - decay * v)
            put(F, g + i, F0)
    else:
        adam(F, D, hyper, w, g, at(I, record + MOMENT1) + first, at(I, record + MOMENT2) + first, at(I, record + STEP), size, scale, rate, decay)


@kernel(floats="scale rate decay")
def adam(F, D, hyper, w, g, m, v, step, size, scale, rate, decay):
    b1 = at(D, hyper + BETA1)
    b2 = at(D, hyper + BETA2)
    first = np.float32(b1)
    second = np.float32(b2)
    rest1 = np.float32(1.0 - b1)
    rest2 = np.float32(1.0 - b2)
    # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + e), with the corrections taken out of the loop
    correction = math.sqrt(1.0 - b2 ** np.float64(step))
    pace = np.float32(np.float64(rate) * correction / (1.0 - b1 ** np.float64(step)))
    epsilon = np.float32(at(D, hyper + EPSILON) * correction)
    for i in range(size):
        d = at(F, g + i) * scale
        a = first * at(F, m + i) + rest1 * d
        b = second * at(F, v + i) + rest2 * d * d
        put(F, m + i, a)
        put(F, v + i, b)
        p = at(F, w + i)
        put(F, w + i, p - pace * a / (np.float32(math.sqrt(b)) + epsilon) - decay * p)
        put(F, g + i, F0)


@kernel(returns=types.int64)
def holds(F, I, layer):
    """Say whether a layer's accumulator holds any gradient."""
    record = I[LAYER0] + layer * LAYER
    marks = at(I, record + MARKS)
    if marks > 0:
        return at(I, marks)
    g = at(I, record + GRAD)
    for i in range(at(I, record + SIZE)):
        if at(F, g + i) != F0:
            return 1
    return 0


@kernel()
def flush(F, I, D):
    """The end of a pass: every layer with a part-filled accumulator updates itself with the mean over what it holds.

    It may hold gradients alone, of instances that counted whole at an earlier update (see `claim`): they are divided by its weight.
    """
    unfold(F, I, -1)
    for layer in range(I[LAYERS]):
        hyper = I[HYPER0] + layer * HYPER
        weight = at(D, hyper + WEIGHT)
        if weight <= 0.0 and at(D, hyper + LAST) > 0.0 and holds(F, I, layer) > 0:
            weight = at(D, hyper + LAST)
        if weight > 0.0 and I[UPDATE] == 1:
            owner = at(I, I[LAYER0] + layer * LAYER + OWNER)
            if I[LOG0] > 0:
                begin_firing(I, owner, 2 * I[SEGMENTS], 0)
            update(F, I, D, layer, weight)
            if I[LOG0] > 0:
                end_firing(I, owner, 2 * I[SEGMENTS], 0)
