"""The log of a pass, event by event: firings, tokens, messages between devices, instances. Measured and simulated runs write the same.

Profiles, pictures and traces for viewers read it and nothing else. It is kept as Parquet tables in a folder, and knows nothing of engines.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ampc.data.write import write_table
from ampc.diagnostics import AmpError, error, printable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Driver = Literal["threads", "step", "simulate", "cost-only"]

FORM = 1
"""Version of the tables."""
SLACK_S = 1e-9
"""Times are sums of floats: what differs by less is the same."""

MOST_S = 1e9
"""Latest time; whole nanoseconds of times ten times as late are no 64-bit numbers."""

_TABLES: dict[str, tuple[str, ...]] = {
    "firings": ("start_s", "end_s", "device", "queue", "tokens", "updates", "waiting", "update_s"),
    "taken": ("taken_firing", "taken_slot", "taken_index"),
    "messages": ("sent_s", "arrived_s", "sender", "receiver_device", "message_queue", "message_slot", "message_index", "message_bytes"),
    "instances": ("admitted_s", "retired_s", "instance"),
    "crossings": ("crossed_message", "crossed_link", "came_s", "entered_s", "left_s"),
}
_LONG = ("taken_index", "message_index", "instance")
_OPTIONAL = ("waiting", "update_s")
_NEVER = ("arrived_s", "retired_s")
"""Times that are NaN where it never happened."""
_LATER = "crossings"
"""A table that older traces lack, and those of runs without links."""


def _type(name: str) -> Any:
    return np.float64 if name.endswith("_s") or name == "message_bytes" else np.int64 if name in _LONG else np.int32


def grouped(numbers: Ints, count: int) -> list[Longs]:
    """Return for each number below `count` where it stands, in order."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1]) if count else []


def _token(queue: Ints, slot: Ints, index: Longs) -> Longs:
    """Return queue, slot and index in one number, as the engine has them."""
    return (queue.astype(np.int64) << 48) | (slot.astype(np.int64) << 28) | index


class Crossings(NamedTuple):
    """When messages occupied links, [n] each: number of the message, of the link; when it came there, when its first and its last byte were sent."""

    message: npt.NDArray[np.int64]
    link: npt.NDArray[np.int64]
    came_s: Floats
    entered_s: Floats
    left_s: Floats


class LogCost(NamedTuple):
    """Seconds that writing a log took, a mean: a look at the clock, of which a firing has one within and one without; all of a firing's entry but
    its tokens; each of these."""

    look_s: float = 0.0
    firing_s: float = 0.0
    token_s: float = 0.0


NO_LOG = LogCost()


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What a pass did. Times in seconds from its beginning; virtual time for simulated runs.

    Firings (n) are in order of start within each device. `queue` is 2 * segment, + 1 backward; 2 * len(segments) stands for layers that
    updated themselves by an order (synchronous mode), which takes no tokens. Raises ValueError if arrays of one table differ in length.
    """

    driver: Driver
    devices: tuple[str, ...]
    segments: tuple[str, ...]
    """What each segment is, for people."""
    links: tuple[str, ...]
    """() where messages pass through memory."""

    start_s: Floats
    end_s: Floats
    device: Ints
    queue: Ints
    tokens: Ints
    updates: Ints
    """[n]: layers that updated themselves within the firing."""

    taken_firing: Ints
    """[m]: the tokens that firings took, in order: number of the firing, place of the instance in flight, state in one number."""
    taken_slot: Ints
    taken_index: Longs

    sent_s: Floats
    """[k]: messages between devices."""
    arrived_s: Floats
    """[k]: when the receiver took it out of the link; NaN if it never did."""
    sender: Ints
    """[k]: number of the firing that sent it; -1 if none of the log did."""
    receiver_device: Ints
    message_queue: Ints
    message_slot: Ints
    message_index: Longs
    message_bytes: Floats
    """[k]: of the payload; NaN if it is not known."""

    admitted_s: Floats
    """[i]: the instances, in order of admission."""
    retired_s: Floats
    """[i]: NaN if it never was."""
    instance: Longs

    dropped: int = 0
    """Events left out because the log was full."""

    waiting: Ints = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    """[n], or empty if not recorded: tokens of the queue when the firing began, with those that it took."""
    update_s: Floats = dataclasses.field(default_factory=lambda: np.zeros(0))
    """[n], or empty if not recorded: seconds of the firing in which layers updated themselves, its last ones."""

    crossed_message: Ints = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    """[c], or empty if not recorded: the message that came to link `crossed_link` at `came_s` and occupied it from `entered_s` to `left_s`."""
    crossed_link: Ints = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    came_s: Floats = dataclasses.field(default_factory=lambda: np.zeros(0))
    entered_s: Floats = dataclasses.field(default_factory=lambda: np.zeros(0))
    left_s: Floats = dataclasses.field(default_factory=lambda: np.zeros(0))

    log_cost: LogCost = NO_LOG
    """What is in the times of the trace that an unrecorded pass does not spend; nothing in virtual time."""

    def __post_init__(self) -> None:
        for table, columns in _TABLES.items():
            length = len(getattr(self, columns[0]))
            for name in columns:
                value = np.ascontiguousarray(getattr(self, name), _type(name))
                object.__setattr__(self, name, value)
                if value.shape != (length,) and not (name in _OPTIONAL and value.shape == (0,)):
                    raise ValueError(f"`{name}` of {table} has shape {value.shape}, expected ({length},)")

    # ------------------------------------------------------------------------------------------------ what it says

    @property
    def seconds(self) -> float:
        """When the last event ended; 0 without events."""
        last = [float(np.nanmax(x)) for x in (self.end_s, self.arrived_s, self.retired_s) if np.isfinite(x).any()]
        return max(last, default=0.0)

    def names(self) -> tuple[str, ...]:
        """Return what each queue is called: 2 * len(segments) names, and that of updates by order."""
        return (*(f"{s} {direction}" for s in self.segments for direction in ("forward", "backward")), "update")

    def busy_s(self) -> Floats:
        """Return float64 [devices]: seconds within firings."""
        return np.bincount(self.device, self.end_s - self.start_s, len(self.devices)).astype(np.float64)

    def by_queue(self) -> tuple[Longs, Longs, Floats]:
        """Return (firings, tokens, seconds) of each queue, [2 * segments + 1] each; the last is that of updates by order."""
        n = 2 * len(self.segments) + 1
        firings = np.bincount(self.queue, minlength=n).astype(np.int64)
        tokens = np.bincount(self.queue, self.tokens, n).astype(np.int64)
        return firings, tokens, np.bincount(self.queue, self.end_s - self.start_s, n).astype(np.float64)

    def utilisation(self, bins: int) -> tuple[Floats, Floats]:
        """Return (edges [bins + 1] in seconds, share of each bin in which a device was within a firing [devices, bins])."""
        edges = np.linspace(0.0, self.seconds or 1.0, bins + 1)
        out = np.zeros((len(self.devices), bins))
        for d, mine in enumerate(grouped(self.device, len(self.devices))):
            start, end = self.start_s[mine], self.end_s[mine]
            # Busy seconds up to a time: whole firings that ended before it, and the begun part of the one that it falls into.
            total = np.concatenate([[0.0], np.cumsum(end - start)])
            k = np.searchsorted(start, edges, side="right")
            after = np.concatenate([[0.0], end])[k]
            out[d] = np.diff(total[k] - np.maximum(after - edges, 0.0) * (k > 0)) / np.diff(edges)
        return edges, out

    def depths(self, queue: int) -> tuple[Floats, Longs]:
        """Return (times, tokens waiting in `queue` from then on), before and after each firing of it; empty if not recorded."""
        mine = np.flatnonzero(self.queue == queue) if len(self.waiting) else np.zeros(0, np.int64)
        mine = mine[np.argsort(self.start_s[mine], kind="stable")]
        before = self.waiting[mine].astype(np.int64)
        return np.repeat(self.start_s[mine], 2), np.stack([before, before - self.tokens[mine]], axis=1).reshape(-1)

    def in_flight(self) -> tuple[Floats, Longs]:
        """Return (times, instances in flight from then on)."""
        ends = self.retired_s[np.isfinite(self.retired_s)]
        times = np.concatenate([self.admitted_s, ends])
        steps = np.concatenate([np.ones(len(self.admitted_s), np.int64), -np.ones(len(ends), np.int64)])
        order = np.lexsort((steps, times))  # at the same time, who retires makes room first
        return times[order], np.cumsum(steps[order])

    def takers(self) -> Ints:
        """Return int32 [k]: the firing that took the token which each message made ready or helped to; -1 if the log holds none.

        It is the first one from the message's arrival on that took this state of this instance from this queue.
        """
        tokens = _token(self.queue[self.taken_firing], self.taken_slot, self.taken_index)
        messages = _token(self.message_queue, self.message_slot, self.message_index)
        kind = np.repeat([0, 1], [len(messages), len(tokens)])  # a message comes before what takes it at the same time
        times = np.concatenate([self.arrived_s, self.start_s[self.taken_firing]])
        order = np.lexsort((kind, times, np.concatenate([messages, tokens])))
        token, kind = np.concatenate([messages, tokens])[order], kind[order]
        number = np.concatenate([np.full(len(messages), -1, np.int64), self.taken_firing])[order]
        place = np.where(kind == 1, np.arange(len(order)), len(order))
        after = np.minimum.accumulate(place[::-1])[::-1]  # the next one that takes
        found = np.minimum(after, max(0, len(order) - 1))
        taker = np.where((after < len(order)) & (token[found] == token), number[found], -1) if len(order) else number
        out = np.full(len(messages), -1, np.int32)
        asked = order[kind == 0]
        out[asked] = taker[kind == 0]
        out[np.isnan(self.arrived_s)] = -1
        return out

    def activity(self) -> dict[str, Floats]:
        """Return float64 [devices] for each of: "busy" within firings, "waiting" for messages between two of them, "overhead" of the other time
        between them, "idle" before the first and after the last. They add up to `seconds`.

        A device waits from the end of a firing until the last message that comes before the next one.
        """
        n, total = len(self.devices), self.seconds
        out = {name: np.zeros(n) for name in ("busy", "waiting", "overhead", "idle")}
        came = grouped(self.receiver_device, n)
        for d, mine in enumerate(grouped(self.device, n)):
            start, end = self.start_s[mine], self.end_s[mine]
            if not len(start):
                out["idle"][d] = total
                continue
            arrived = np.sort(self.arrived_s[came[d]])
            arrived = arrived[: np.searchsorted(arrived, np.inf)]  # NaN sorts last
            known = np.concatenate([[-np.inf], arrived])
            last = known[np.searchsorted(arrived, start[1:], side="right")]
            gaps = start[1:] - end[:-1]
            waits = np.clip(last - end[:-1], 0.0, np.maximum(gaps, 0.0))
            out["busy"][d] = float((end - start).sum())
            out["waiting"][d] = float(waits.sum())
            out["idle"][d] = float(start[0] + max(0.0, total - end[-1]))
            out["overhead"][d] = max(0.0, total - out["busy"][d] - out["waiting"][d] - out["idle"][d])
        return out

    def window(self, begin_s: float, end_s: float) -> Trace:
        """Return what happened within [begin_s, end_s): firings that begin there, messages that they sent and instances in flight then.

        Times stay those of the whole trace. A message whose sender lies outside is kept, with sender -1, if it arrived within.
        """
        kept = (self.start_s >= begin_s) & (self.start_s < end_s)
        number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        from_within = np.zeros(len(self.sender), bool)
        known = self.sender >= 0
        from_within[known] = kept[self.sender[known]]
        messages = from_within | ((self.arrived_s >= begin_s) & (self.arrived_s < end_s))
        sender = np.full(len(self.sender), -1, np.int32)
        sender[known] = number[self.sender[known]]
        taken = kept[self.taken_firing]
        flying = (self.admitted_s < end_s) & ~(self.retired_s < begin_s)
        crossed = messages[self.crossed_message] & (self.entered_s >= begin_s) & (self.entered_s < end_s)
        masks = {"firings": kept, "taken": taken, "messages": messages, "instances": flying, "crossings": crossed}
        columns = {name: getattr(self, name) for names in _TABLES.values() for name in names}
        columns |= {"sender": sender, "taken_firing": number[self.taken_firing]}
        columns |= {"crossed_message": (np.cumsum(messages) - 1)[self.crossed_message].astype(np.int32)}
        cut = {name: columns[name][masks[table]] for table, names in _TABLES.items() for name in names if len(columns[name])}
        return dataclasses.replace(self, **cut)

    # ------------------------------------------------------------------------------------------------ consistency

    def crossings(self) -> Crossings:
        """Return when messages were on links; nothing if that was not recorded."""
        return Crossings(self.crossed_message.astype(np.int64), self.crossed_link.astype(np.int64), self.came_s, self.entered_s, self.left_s)

    def crossed(self, found: Crossings) -> Trace:
        """Return the trace with `found`, in order of time within each link."""
        order = np.lexsort((found.left_s, found.entered_s, found.link))
        columns: dict[str, Any] = dict(zip(_TABLES["crossings"], (x[order] for x in found), strict=True))
        return dataclasses.replace(self, **columns)

    def staleness(self) -> Ints:
        """Return int32 [n]: of a backward firing, how many firings of its segment have updated a layer since the forward of one of its tokens, the
        most; -1 of other firings, and where the forward is not in the log. Updates that another segment with the same layer made are not counted."""
        n, last = len(self.start_s), 2 * len(self.segments)
        segment = self.queue // 2
        made = np.zeros(n, np.int64)  # updates of the segment before the firing
        updating = (self.updates > 0) & (self.queue < last)
        for mine in grouped(segment, len(self.segments) + 1)[:-1]:
            if len(mine):
                made[mine] = np.searchsorted(np.sort(self.end_s[mine[updating[mine]]]), self.start_s[mine], side="right")
        of = self.taken_firing
        kept = np.flatnonzero(self.queue[of] < last)
        of, token = of[kept], _token(segment[of[kept]].astype(np.int32), self.taken_slot[kept], self.taken_index[kept])
        backward = self.queue[of] % 2 == 1
        order = np.lexsort((self.start_s[of], token))
        of, token, backward = of[order], token[order], backward[order]
        pair = np.flatnonzero(backward[1:] & ~backward[:-1] & (token[1:] == token[:-1])) + 1
        out = np.full(n, -1, np.int32)
        np.maximum.at(out, of[pair], (made[of[pair]] - made[of[pair - 1]]).astype(np.int32))
        return out

    def problems(self) -> list[str]:
        """Return what cannot be: numbers out of range, negative lengths, firings of a device that overlap, messages before they were sent."""
        found = self._out_of_range()
        if found:
            return found
        for name, mine in zip(self.devices, grouped(self.device, len(self.devices)), strict=True):
            start, end = self.start_s[mine], self.end_s[mine]
            for k in np.flatnonzero(start[1:] < start[:-1] - SLACK_S)[:1]:
                found.append(f"device `{name}`: firing {mine[k + 1]} starts before firing {mine[k]}, which stands before it")
            for k in np.flatnonzero(start[1:] < end[:-1] - SLACK_S)[:1]:
                found.append(f"device `{name}`: firing {mine[k + 1]} starts at {start[k + 1]:.9f} s, before firing {mine[k]} ends at {end[k]:.9f} s")
        for k in np.flatnonzero(self.end_s < self.start_s)[:1]:
            found.append(f"firing {k} ends {self.start_s[k] - self.end_s[k]:.9f} s before it starts")
        for k in np.flatnonzero(self.arrived_s < self.sent_s - SLACK_S)[:1]:
            found.append(f"message {k} arrives at {self.arrived_s[k]:.9f} s, before it is sent at {self.sent_s[k]:.9f} s")
        sender = np.maximum(self.sender, 0)
        early = (self.sender >= 0) & (self.sent_s < (self.start_s[sender] if len(self.start_s) else 0.0) - SLACK_S)
        for k in np.flatnonzero(early)[:1]:
            found.append(f"message {k} is sent before firing {self.sender[k]}, which sends it, starts")
        order = np.lexsort((self.left_s, self.entered_s, self.crossed_link))
        link, entered, left = self.crossed_link[order], self.entered_s[order], self.left_s[order]
        for k in np.flatnonzero((link[1:] == link[:-1]) & (entered[1:] < left[:-1] - SLACK_S))[:1]:
            found.append(f"link `{self.links[link[k]]}`: a message enters at {entered[k + 1]:.9f} s, before another has left at {left[k]:.9f} s")
        for k in np.flatnonzero(self.retired_s < self.admitted_s - SLACK_S)[:1]:
            found.append(f"instance {self.instance[k]} retires before it is admitted")
        took = np.bincount(self.taken_firing, minlength=len(self.tokens))
        for k in np.flatnonzero(took != self.tokens)[:1] if self.dropped == 0 and len(self.taken_firing) else ():
            found.append(f"firing {k} took {self.tokens[k]} tokens, of which {took[k]} are listed")
        return found

    def _out_of_range(self) -> list[str]:
        """Return which numbers stand for nothing, and which times are none."""
        firings, queues = len(self.start_s), 2 * len(self.segments) + 1
        limits = {
            "device": (0, len(self.devices)), "queue": (0, queues), "tokens": (0, None), "updates": (0, None), "waiting": (0, None),
            "taken_firing": (0, firings), "taken_slot": (0, None), "taken_index": (0, None),
            "sender": (-1, firings), "receiver_device": (0, len(self.devices)), "message_queue": (0, queues), "message_slot": (0, None),
            "message_index": (0, None), "instance": (0, None), "crossed_message": (0, len(self.sent_s)), "crossed_link": (0, len(self.links)),
        }  # fmt: skip
        found = []
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            for k in np.flatnonzero((value < low) | (value >= (np.iinfo(value.dtype).max if high is None else high)))[:1]:
                found.append(f"`{name}` {k} is {value[k]}, expected {low} to {'' if high is None else high - 1}".rstrip())
        for name in ("start_s", "end_s", "sent_s", "arrived_s", "admitted_s", "retired_s", "update_s", "came_s", "entered_s", "left_s"):
            value = getattr(self, name)
            fits = (value >= 0) & (value <= MOST_S) | (np.isnan(value) if name in _NEVER else False)
            for k in np.flatnonzero(~fits)[:1]:
                found.append(f"`{name}` {k} is {value[k]:g}, expected 0 to {MOST_S:g}")
        return found

    # ------------------------------------------------------------------------------------------------ files

    def save(self, folder: str | Path) -> None:
        """Write the tables as `firings.parquet`, `taken.parquet`, `messages.parquet`, `instances.parquet` and `crossings.parquet`; the folder is
        made if need be.

        Raises AmpError AMP824 (exit code 4) for what the system refuses.
        """
        folder = Path(folder)
        tables = {table: {name: getattr(self, name) for name in names if len(getattr(self, name))} for table, names in _TABLES.items()}
        facts = {
            "form": FORM, "driver": self.driver, "devices": self.devices, "segments": self.segments, "links": self.links, "dropped": self.dropped,
            "log_cost": self.log_cost, "rows": {table: len(getattr(self, names[0])) for table, names in _TABLES.items()},
        }  # fmt: skip
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise error("AMP824", f"`{folder}` can't be made: {(e.strerror or str(e)).lower()}", help="give another path", exit_code=4) from None
        for table in ("taken", "messages", "instances", _LATER, "firings"):  # the last one tells what the others must hold
            columns = tables[table]
            write_table(folder / f"{table}.parquet", pa.table(columns).replace_schema_metadata({b"ampc.trace": json.dumps(facts).encode()}))


def join(parts: list[tuple[float, Trace]]) -> Trace:
    """Return passes of one program as one trace, each begun so many seconds after the first one. Raises ValueError if they differ in devices."""
    first = parts[0][1]
    if any((t.devices, t.segments, t.links) != (first.devices, first.segments, first.links) for _, t in parts):
        raise ValueError("traces of different devices or programs")
    base = np.cumsum([0, *(len(t.start_s) for _, t in parts)])[:-1]
    columns: dict[str, Any] = {}
    for names in _TABLES.values():
        for name in names:
            if name in _OPTIONAL and any(len(getattr(t, name)) != len(t.start_s) for _, t in parts):
                continue
            offset = [0.0 if not name.endswith("_s") or name == "update_s" else begin for begin, _ in parts]
            columns[name] = np.concatenate([getattr(t, name) + begin for begin, (_, t) in zip(offset, parts, strict=True)])
    columns["taken_firing"] = np.concatenate([t.taken_firing + n for n, (_, t) in zip(base, parts, strict=True)])
    sent = np.cumsum([0, *(len(t.sent_s) for _, t in parts)])[:-1]
    columns["crossed_message"] = np.concatenate([t.crossed_message + n for n, (_, t) in zip(sent, parts, strict=True)])
    columns["sender"] = np.concatenate([np.where(t.sender >= 0, t.sender + n, -1) for n, (_, t) in zip(base, parts, strict=True)])
    return dataclasses.replace(first, dropped=sum(t.dropped for _, t in parts), **columns)


def load(folder: str | Path) -> Trace:
    """Return the trace in `folder`, or in the `trace` folder of a run folder. Raises AmpError AMP720 if there is none or it is damaged."""
    folder = Path(folder)
    shown = printable(str(folder))
    if not (folder / "firings.parquet").is_file() and (folder / "trace" / "firings.parquet").is_file():
        folder = folder / "trace"
    if not (folder / "firings.parquet").is_file():
        raise error("AMP720", f"`{shown}` holds no trace", help="`ampc run --trace` writes one into the run folder")
    try:
        facts: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        for table, names in _TABLES.items():
            if table == _LATER and table not in facts["rows"]:
                continue
            read = pq.read_table(folder / f"{table}.parquet", memory_map=False)
            own = json.loads((read.schema.metadata or {})[b"ampc.trace"])
            facts = facts or own
            if own != facts or own["form"] != FORM or read.num_rows != own["rows"][table]:
                raise ValueError(f"`{table}.parquet` is not of the same trace, or of another version")
            for name in names:
                kind = pa.float64() if _type(name) is np.float64 else pa.int64() if _type(name) is np.int64 else pa.int32()
                if name in read.column_names:
                    if read.column(name).null_count:
                        raise ValueError(f"`{name}` of `{table}.parquet` lacks values")
                    columns[name] = read.column(name).cast(kind).combine_chunks().to_numpy(zero_copy_only=False)
                elif name in _OPTIONAL or read.num_rows == 0:
                    columns[name] = np.zeros(0, _type(name))
                else:
                    raise ValueError(f"`{table}.parquet` has no column `{name}`")
        if facts["driver"] not in get_args(Driver):
            raise ValueError(f"there is no driver `{facts['driver']}`")
        devices, segments, links = (tuple(str(x) for x in facts[name]) for name in ("devices", "segments", "links"))
        cost = LogCost(*(float(x) for x in facts.get("log_cost", ())))
        if not all(0 <= x <= 1 for x in cost):
            raise ValueError(f"`log_cost` is {cost}, expected seconds from 0 to 1")
        trace = Trace(
            driver=facts["driver"], devices=devices, segments=segments, links=links, dropped=int(facts["dropped"]), log_cost=cost, **columns
        )
        wrong = trace._out_of_range()
        if wrong:
            raise ValueError(wrong[0])
        return trace
    except AmpError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as e:
        reason = str(e).splitlines()[0].lower() if str(e) else type(e).__name__
        raise error("AMP720", f"the trace in `{shown}` can't be read: {printable(reason)}", help="make it anew with `ampc run --trace`") from None
