"""Names for the integer table `I`: fixed header words, and one cell for each number that kernels need but only a run knows.

A cell is an offset, an address of a field, a capacity. The code generator asks for cells while it writes text; the engine fills them when
it is bound to data, so that kernels need no new compilation for other data, more instances in flight or more workers.
"""

from __future__ import annotations

from enum import IntEnum, auto


class H(IntEnum):
    """Words of the header. Those that two threads touch lie on cache lines (8 words) of their own."""

    STOP = 0
    """1: workers return."""
    ERROR = 8
    """A runtime fault, see `worker`; the detail is in the next word."""
    HALT = 16
    """1: admit no more instances (drain)."""
    DONE = 24
    """Instances retired."""
    ADMITTED = 32
    IDLE = 33
    """Height of the stack of idle cohorts."""
    IN_BATCH = 34
    """Instances admitted since the last update; -1 while layers are being told to update."""
    NEXT_COPY = 35
    """The copy of replicated layers whose turn it is."""
    ACKS = 40
    """Layers that have answered the last update order (synchronous mode)."""
    NONFINITE = 48
    """1 + the number of the first instance whose loss was not finite; the next word holds its segment."""
    NONFINITE_COUNT = 56
    TRAIN = 64
    """1: backward computes gradients; 0: it only answers."""
    UPDATE = auto()
    """1: layers update themselves; 0: gradients stay in their accumulators."""
    SYNC = auto()
    WORKERS = auto()
    THREADS = auto()
    """Threads that the workers are dealt to: worker w runs on thread w % THREADS."""
    SLOTS = auto()
    GROUP = auto()
    """Slots in a cohort: admitted together."""
    COHORTS = auto()
    COHORT0 = auto()
    """I: how many instances each cohort has in flight; then the stack of idle cohorts."""
    BATCH = auto()
    """Synchronous mode: instances between two updates."""
    TOTAL = auto()
    """Instances of this pass; their numbers are at ORDER0, and TOTAL words on a mark for each that has retired."""
    ORDER0 = auto()
    BREAKS0 = auto()
    """I: 1 at each position of the order where a new group must begin."""
    VALUES0 = auto()
    """I: words of the pool in which the values of instances in flight lie, see `M`; then a record for each cohort and one more, see `room`."""
    COUNTS0 = auto()
    """I: the same of their counters."""
    SHAPE0 = auto()
    """I: where the layout of instance i is, see `A`."""
    SLOT0 = auto()
    """I: SLOT words for each slot, see `Z`."""
    WORK0 = auto()
    """I: worker w has its block at WORK0 + w * WORK_STRIDE."""
    WORK_STRIDE = auto()
    SCRATCH0 = auto()
    """F: worker w has its scratch at SCRATCH0 + w * SCRATCH_STRIDE."""
    SCRATCH_STRIDE = auto()
    CAP = auto()
    """Most tokens in one firing."""
    SEGMENTS = auto()
    SEG0 = auto()
    """I: SEG words for each segment, see `S`."""
    LAYERS = auto()
    LAYER0 = auto()
    """I: LAYER words for each layer, see `L`."""
    QUEUE0 = auto()
    """I: queue q has its control words at QUEUE0 + q * 8, see `Q`."""
    RING0 = auto()
    """I: control words of the ring from worker a to b at RING0 + (a * WORKERS + b) * 32; see `R`."""
    EPOCH = auto()
    SEED = auto()
    STATS = auto()
    """D: doubles in each worker's block of sums."""
    STAT0 = auto()
    """D: worker w sums losses and metrics from STAT0 + w * STATS on."""
    HYPER0 = auto()
    """D: doubles of layer l from HYPER0 + l * HYPER on, see `P`."""
    WEIGHT0 = auto()
    """D: 1 / (firings of instance i for layer l) at WEIGHT0 + i * LAYERS + l, 1 where they are counted as they happen; 0: none has a row."""
    FOLDS = auto()
    FOLD0 = auto()
    """I: FOLD words for each folded table, see `T`."""
    SCHEDULE = auto()
    """0: most waiting rows first (backward counts double); 1: drawn by the step driver's random numbers."""
    RANDOM = auto()
    """State of the step driver's random numbers."""
    OUTBOX = auto()
    """I: in virtual time, where messages to other devices are put for the network to carry: their number, then (device, token, amount)
    of each; 0: they go into the rings."""
    OUTBOX_ROOM = auto()
    """Messages that the outbox holds at most."""
    LOG0 = auto()
    """I: worker w writes what it does from LOG0 + w * LOG_STRIDE on, see `E`; 0: nothing is written down."""
    LOG_STRIDE = auto()
    KERNEL0 = auto()
    """I: for each queue the address of the function that fires it, and where its numbers are, see `own`."""
    TIMES0 = auto()
    """I: while a log is written, when the instance of each place in the order was admitted; TOTAL words on, when it retired."""
    COPIES = auto()
    """Copies of replicated layers that instances are dealt to; 1 if there are none."""
    BY_LOAD = auto()
    """1: a cohort goes to the copy with least in flight; 0: to the copies in turn."""
    LOAD0 = auto()
    """I: lines of values that each copy has in flight."""
    MEASURE = auto()
    """1: losses and metrics are computed; 0, where there is no way back: outputs alone."""
    END = auto()


class S(IntEnum):
    """Words of a segment's record at SEG0 + s * SEG."""

    OWNER = 0
    NEED = 1
    """Messages that one firing waits for; those of Group elements are not among them."""
    TAKE = 2
    """Most tokens in one firing."""
    WIDTH = 3
    """Counters of a state: arrivals; where there is a way back, unanswered messages and the version of each layer at the forward firing."""
    COUNTED = 4
    """1: arrivals must be counted (NEED > 1 or Groups)."""
    LAYERS_FROM = 5
    """I: numbers of the segment's layers."""
    LAYERS_N = 6


class Z(IntEnum):
    """Words of a slot at SLOT0 + slot * SLOT."""

    INSTANCE = 0
    POSITION = 1
    """Its place in the order."""
    COPY = 2
    """The copy of replicated layers that it is dealt to."""
    ARENA = 3
    """F: where its values are."""
    COUNTERS = 4
    """I: where its counters are: those of layers that are counted as they happen, then by segment and state."""
    LAYOUT = 5
    """I: where its parts begin, see `A`."""
    MESSAGES = 6
    """Where there is no way back: messages sent and not taken yet. The worker's that the instance is on, once the Source has fired."""


class A(IntEnum):
    """Words of the layout of a shape: all instances with equal axis lengths have one."""

    VALUES = 0
    """Lines of values."""
    COUNTS = 1
    """Lines of counters."""
    PARTS = 2
    """Where the counters of each segment begin in the slot's, then where each storage begins in its arena."""


class M(IntEnum):
    """Words of a pool, the Source's owner's own. It is given out by lines: FLOATS floats of F, or WORDS words of I."""

    LINES = 0
    START = 1
    """F or I: where it begins."""
    FULL = 2
    """1: nothing has retired since no room was found."""
    LIVE = 3
    """Lines in use."""
    PEAK = 4
    """Most lines that were in use in this pass."""
    FLIGHT = 5
    """Most instances that were in flight in this pass."""


class Q(IntEnum):
    """Words of a ready queue: 2 s is the forward queue of segment s, 2 s + 1 its backward one."""

    BUFFER = 0
    MASK = 1
    HEAD = 2
    TAIL = 3
    ROWS = 4
    """How much one token weighs in the choice of what to fire."""
    FIRED = 5
    """Firings in this pass."""
    TAKEN = 6
    """Tokens fired in this pass."""


class R(IntEnum):
    """Words of a ring, single producer and single consumer; the words of the two sides are a cache line apart."""

    BUFFER = 0
    MASK = 1
    TAIL = 8
    """Published by the producer."""
    HEAD = 16
    """Published by the consumer."""
    STAGED = 24
    """The producer's own: entries written but not yet published. The consumer, which looks at TAIL all the time, does not touch this line."""
    SEEN_HEAD = 25


class L(IntEnum):
    """Words of a layer's record at LAYER0 + l * LAYER."""

    OWNER = 0
    VERSION = 1
    """Updates made so far in this run."""
    PARAM = 2
    """F: the parameters, contiguous."""
    SIZE = 3
    GRAD = 4
    MOMENT1 = 5
    MOMENT2 = 6
    OPTIMIZER = 7
    """0 sgd, 1 momentum, 2 adam, 3 adamw."""
    STEP = 8
    """Updates since the parameters were made (Adam's t)."""
    HISTOGRAM = 9
    """I: staleness counts, STALENESS_BINS words."""
    MARKS = 10
    """I: touched rows of a sparse table (see `rows.touch`); 0: dense."""
    COLS = 11
    """Row width of a sparse table."""
    COUNTER = 12
    """Place in a slot's counters of three words: firings forward, firings backward, weight claimed; -1: the number is known beforehand."""
    UPDATES = 13
    """Updates made in this pass."""
    STASH = 14
    """F: the parameters of the last STASH_DEPTH versions, version v in place v % STASH_DEPTH."""
    STASH_DEPTH = 15
    """0: a backward uses the parameters of now; CORRECTED: at STASH lie the parameters that it uses, and after them the drift (see `optimizer`)."""
    APPLIED = 16
    """Parameters, from the first on, that this firing has updated already (see `optimizer.direct`)."""
    HALF = 17
    """16-bit words of F: the parameters as bf16; 0: they are not kept so."""


class T(IntEnum):
    """Words of a folded table at FOLD0 + k * FOLD: an embedding whose rows go straight into a Linear, kept as their product.

    While neither layer changes, lookup and matrix product together are a lookup in PRODUCT = table @ w[rows of w] (+ bias), and the gradients
    of both layers follow from that of PRODUCT, which is summed by rows and taken apart when one of the layers updates itself.
    """

    TABLE = 0
    W = 1
    BIAS = 2
    """-1: another part of the Linear's input brings the bias, or there is none."""
    GRAD_TABLE = 3
    GRAD_W = 4
    GRAD_BIAS = 5
    PRODUCT = 6
    GRAD_PRODUCT = 7
    ROWS = 8
    INNER = 9
    COLS = 10
    TABLE_LAYER = 11
    LINEAR_LAYER = 12
    TABLE_VERSION = 13
    """Versions of the two layers that PRODUCT was made from; -1: none."""
    LINEAR_VERSION = 14
    DIRTY = 15
    """1: GRAD_PRODUCT holds gradients that have not been taken apart."""


class G(IntEnum):
    """Words after a worker's token arrays; the first hold what a matrix product is called with. Those of `precision = bf16` follow `BEAT`."""

    BEAT = 8
    """Turns that did something."""
    ROUNDED = 9
    """F: the gradient whose bf16 twin is at RIGHT; -1: none that may be taken again."""
    LEFT = 10
    """16-bit words of F: where the worker rounds the rows that a layer reads,"""
    RIGHT = 11
    """the gradients of what it gives,"""
    WEIGHTS = 12
    """and parameters that are not the layer's of now."""
    MIRROR = 13
    """The parameter at F[i] is also the bf16 number at 16-bit word MIRROR + i, for every i below MIRRORED."""
    MIRRORED = 14
    HELPER = 15
    """I: where a worker shares large products with another thread, see `B`; 0: it makes them alone."""
    PANELS = 16
    """I: which parameters also lie in panels, see `W`; 0: none."""
    END = 24


class B(IntEnum):
    """Words of the place at which one thread shares its products with another. What different threads write lies on different cache lines."""

    OFFER = 0
    """Products offered so far; the last one's words follow: rows, columns, inner, places and strides of A, B and C, and whether to add to C,"""
    M = 1
    N = 2
    K = 3
    A = 4
    LDA = 5
    B = 6
    LDB = 7
    C = 8
    LDC = 9
    MORE = 10
    HOW = 11
    """and what makes it: 0 the BLAS, 1 `panels.by_panels` (B and LDB are its places), 2 `panels.by_rows` (LDA is the place of the list)."""
    CLAIMED = 16
    """Products taken so far, by whoever was there first."""
    DONE = 24
    """The last one that the helper has finished."""
    AWAKE = 32
    """1: the helper looks for offers."""
    LEAVE = 40
    """1: the helper returns."""
    ARGUMENTS = 48
    """What the helper calls a BLAS with."""
    END = 64


class W(IntEnum):
    """Words of a matrix of weights that also lies in panels, in a table of such records behind their number and the place of a list."""

    BEGIN = 0
    """F: its first row,"""
    END = 1
    """and what is behind its last."""
    COLS = 2
    PLACE = 3
    """F: its panels."""
    ROWS = 4
    FINITE = 5
    """1: all its numbers are, so that a row of them times 0 is 0."""


class P(IntEnum):
    """Doubles of a layer at HYPER0 + l * HYPER."""

    WEIGHT = 0
    """Instances in the accumulator."""
    FREQUENCY = 1
    RATE = 2
    MOMENTUM = 3
    BETA1 = 4
    BETA2 = 5
    EPSILON = 6
    DECAY = 7
    L2 = 8
    CLIP_NORM = 9
    CLIP_VALUE = 10
    STALE = 11
    LAST = 12
    """WEIGHT at the newest update of the pass; 0 before."""
    """Running mean of the staleness of the layer's gradients, in updates."""


class E(IntEnum):
    """Words of a worker's log; what it holds follows. Times are those of `native.now`, in nanoseconds."""

    FIRINGS = 0
    """Firings written so far, FIRING words each: start, end, queue << 32 | tokens, updates << 32 | tokens that waited, nanoseconds of updates."""
    TAKEN = 1
    """Tokens written so far, as in a queue."""
    SENT = 2
    """Messages to other workers, 3 words each: when, token, receiver << 40 | 1 + number of the firing in this worker's log."""
    ARRIVED = 3
    """Polls that found messages, 2 words each: when, sender << 40 | how many."""
    LOST = 4
    """Events that found no room."""
    FIRINGS_ROOM = 5
    TAKEN_ROOM = 6
    SENT_ROOM = 7
    ARRIVED_ROOM = 8
    FIRINGS0 = 9
    """I: where the firings are, and so on."""
    TAKEN0 = 10
    SENT0 = 11
    ARRIVED0 = 12
    SENDER = 13
    """1 + number of the turn's firing; 0: it had none, or it found no room."""
    START = 14
    """Of the firing that is going on, like the two next ones."""
    WAITED = 15
    UPDATES = 16
    UPDATE_NS = 17
    CLOCK = 18
    """Two words that the system's clock writes to."""


LOG = 24
SLOT = 8
POOL = 8
LINE_BYTES = 64
"""A cache line."""
FLOATS, WORDS = LINE_BYTES // 4, LINE_BYTES // 8
FIRING = 5
SEG = 8
LAYER = 24
FOLD = 16
HYPER = 16
STALENESS_BINS = 256
CORRECTED = -1
FIRST_CELL = 160
BIG = 1 << 40
"""What a message of fixed number adds to an arrival counter; a Group's elements add 1, and its expectation BIG less their number."""

ENOUGH = 64
"""Rows from which on a matrix product runs at nearly its full rate."""
PLENTY = 256
"""Rows with which a backward queue goes before all others: as often as that, a gradient's way through memory is small beside its products."""
FULL, FIRST = 1 << 40, 1 << 50
"""Added to a queue's weight when the next is chosen: full backward firings before all others, admission and retirement before these."""

SLOT_BITS = 20
INDEX_BITS = 28
"""A token is queue << 48 | slot << 28 | index."""

Key = tuple[str | int, ...]


class Cells:
    """Cells asked for so far: key -> index in `I`, in the order of asking."""

    def __init__(self, segments: int = 0) -> None:
        self.index: dict[Key, int] = {}
        self.storages: dict[Key, int] = {}
        """Storage -> its number: the order in which they were asked for."""
        self.segments = segments

    def __call__(self, *key: str | int) -> int:
        return self.index.setdefault(key, FIRST_CELL + len(self.index))

    def storage(self, *key: str | int) -> int:
        """Return which word of a shape's layout says where storage `key` begins."""
        return A.PARTS + self.segments + self.storages.setdefault(key, len(self.storages))


assert H.END <= FIRST_CELL
