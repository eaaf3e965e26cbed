"""PyTorch trained to the same targets, in its best form by hand: a mode of its own, `torch`, beside `async` and `sync`.

    python -m experiments.run TASK ... --modes torch --seeds 0 1 2         in an environment with PyTorch
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from benchmarks.ours import graph_of
from experiments.records import Record
from experiments.tasks import Task

VALIDATED = 500
"""Instances of a batch without gradients."""
TIMED_BATCHES = 20


def train(task: Task, seed: int, workers: int) -> Record:
    """Train with the settings of the synchronous mode and with the same initial weights; the threads that are faster of 1 .. `workers`."""
    import torch

    from ampc.ir.init import initial_parameters
    from experiments.torch_forms import FORMS

    data = task.data(seed)
    scale = task.scale(data)
    program = graph_of(task.model, **{k: v for k, v in task.overrides.items() if k != "copies"})
    o = program.options({"epochs": task.epochs, "until": task.until(data), "seed": seed, "mode": "sync", **task.settings})
    form = FORMS[task.model]
    d, v = program.read(data, "train"), program.read(data, "valid")
    draw = np.random.default_rng(seed)
    batches = [(form.batch(d, part), len(part)) for part in form.parts(d, o.min_update_frequency, draw)]
    asked = [form.batch(v, part) for part in form.parts(v, VALIDATED, draw)]

    def fresh() -> Any:
        torch.manual_seed(seed)
        drawn = initial_parameters(program.graph, seed)
        return Trained(torch, {k: torch.tensor(a, requires_grad=True) for k, a in drawn.items()}, form, o)

    def pace(threads: int) -> float:
        torch.set_num_threads(threads)
        net = fresh()
        for b, n in batches[:3]:
            net.step(b, n)
        began = time.perf_counter()
        for b, n in batches[:TIMED_BATCHES]:
            net.step(b, n)
        return time.perf_counter() - began

    threads = min(range(1, workers + 1), key=pace)
    torch.set_num_threads(threads)
    net = fresh()
    curve: list[tuple[float, float, float]] = []
    reached, rates = False, []
    load_before, cpu, wall = os.getloadavg()[0], time.process_time(), time.perf_counter()
    for epoch in range(task.epochs):
        order = draw.permutation(len(batches))
        net.rate(epoch, o)
        done, began, marks = 0, time.perf_counter(), 1
        for i in order:
            net.step(*batches[i])
            done += batches[i][1]
            if done * task.checks >= marks * d.n:
                marks += 1
                value = net.ask(asked) * scale
                curve.append((epoch + done / d.n, time.perf_counter() - wall, value))
                if reached := value <= task.target if task.falls else value >= task.target:
                    break
        rates.append(done / (time.perf_counter() - began))
        if reached:
            break
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Record(
        fingerprint=task.fingerprint("torch", seed), task=task.name, mode="torch", seed=seed, workers=threads, reached=reached, epochs=curve[-1][0],
        seconds=wall if reached else None, rate=float(np.median(rates)), curve=curve, staleness=0.0, cpu_share=cpu / wall,
        load_before=load_before, finished=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )  # fmt: skip


class Trained:
    """Weights with their optimisers: one for each set of settings that layers have, as the `train:` block gives them."""

    def __init__(self, torch: Any, weights: dict[str, Any], form: Any, o: Any) -> None:
        self.torch, self.weights, self.form = torch, weights, form
        self.layers: dict[str, list[Any]] = {}
        self.clip = o.clip_norm
        sets: dict[tuple[bool, float], list[Any]] = {}
        for name, w in weights.items():
            layer = name.rpartition(".")[0]
            self.layers.setdefault(layer, []).append(w)
            rate = float(o.per_layer.get(layer, {}).get("learning_rate", o.learning_rate))
            sets.setdefault((name in form.sparse, rate), []).append(w)
        self.optimisers = [(self._optimiser(o, them, rate, sparse), rate) for (sparse, rate), them in sets.items()]

    def _optimiser(self, o: Any, parameters: list[Any], rate: float, sparse: bool) -> Any:
        optim = self.torch.optim
        if o.optimizer == "sgd":
            return optim.SGD(parameters, lr=rate, fused=True)
        if sparse:
            return optim.SparseAdam(parameters, lr=rate, betas=(o.beta1, o.beta2), eps=o.epsilon)
        return optim.Adam(parameters, lr=rate, betas=(o.beta1, o.beta2), eps=o.epsilon, fused=True)

    def rate(self, epoch: int, o: Any) -> None:
        """Set the learning rates of an epoch (from 0)."""
        from ampc.runtime.schedule import factor

        for optimiser, rate in self.optimisers:
            optimiser.param_groups[0]["lr"] = rate * factor(o, epoch, o.epochs)

    def step(self, batch: Any, n: int) -> None:
        loss = self.form.loss(self.form.forward(self.weights, batch, True), batch[-1]) / n
        loss.backward()
        if self.clip:
            for parameters in self.layers.values():
                if not any(p.grad is not None and p.grad.is_sparse for p in parameters):
                    self.torch.nn.utils.clip_grad_norm_(parameters, self.clip, foreach=True)
        for optimiser, _ in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def ask(self, batches: list[Any]) -> float:
        """Return the metric's mean over batches."""
        with self.torch.inference_mode():
            got = [self.form.right(self.form.forward(self.weights, b, False), b[-1]) for b in batches]
        return sum(g[0] for g in got) / sum(g[1] for g in got)
