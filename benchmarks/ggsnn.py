"""A gated graph network on QM9: PyTorch by molecule, by the union of 20 or 100 molecules and dense, PyG, against ampc without batching.

All have four edge types, four rounds, a GRU, a gated sum and Adam; PyG's layer has one bias for all types. The dense NH x NH form multiplies the
state vector of a whole molecule by one block matrix, as the published comparison of this network did.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import copied, data_folder, graph_of, ours
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Calls, Steps, prepare, updater, words

KINDS, ELEMENTS, ROUNDS = 4, 5, 4
MOLECULES = 4000
UPDATE = 20
"""ampc's layers update after so many molecules, as PyTorch's batches of 20 do."""
MODEL = "qm9_ggsnn"
FORMS = {
    "one molecule": (1, "summed"), "20, sources summed first": (20, "summed"), "20, a product per kind": (20, "kinds"),
    "100, sources summed first": (100, "summed"), "20 padded": (20, "padded"), "20 dense NH x NH": (20, "dense"),
}  # fmt: skip



def settings(hidden: int) -> dict[str, Any]:
    """ampc's."""
    common = {"min_update_frequency": UPDATE, "clip_norm": 0.0, "instances": MOLECULES}
    return {"max_active_keys": 64, "overrides": {"hidden": hidden}, **common}


def folder() -> str:
    return str(data_folder("qm9", limit=8000))


Molecule = tuple[Any, Any, Any, Any, float]
"""Elements of the atoms; source, target and kind of the bonds; the dipole, normalised."""


def molecules(data: str) -> list[Molecule]:
    d = graph_of("qm9_ggsnn").read(data)
    element = d.columns["feature"].argmax(axis=1)
    dipole = d.columns["dipole"][:, 0]
    dipole = (dipole - dipole.mean()) / dipole.std()
    atoms, bonds = d.axes["atom"], d.axes["bond"]
    chosen = np.random.default_rng(0).permutation(d.n)[:MOLECULES]
    fields = [d.columns[f] for f in ("source", "target", "kind")]
    return [(element[atoms[i] : atoms[i + 1]], *(f[bonds[i] : bonds[i + 1]] for f in fields), float(dipole[i])) for i in chosen]


def joined(torch: Any, part: list[Molecule]) -> tuple[Any, ...]:
    """One graph of several: elements, sources, targets, cell (target, kind) of each bond, bonds per cell, molecule of each atom, cuts by kind."""
    sizes = np.array([len(m[0]) for m in part])
    shift = np.cumsum(sizes) - sizes
    source, target = (np.concatenate([m[k] + s for m, s in zip(part, shift, strict=True)]) for k in (1, 2))
    kind = np.concatenate([m[3] for m in part])
    by_kind = np.argsort(kind, kind="stable")
    source, target, kind = source[by_kind], target[by_kind], kind[by_kind]
    cell = target * KINDS + kind
    count = np.bincount(cell, minlength=int(sizes.sum()) * KINDS).reshape(-1, KINDS).astype(np.float32)
    cuts = np.searchsorted(kind, np.arange(KINDS + 1)).tolist()
    arrays = (np.concatenate([m[0] for m in part]), source, target, cell, count, np.repeat(np.arange(len(part)), sizes))
    return (*(torch.from_numpy(a) for a in arrays), cuts, torch.tensor([m[4] for m in part], dtype=torch.float32))


def padded(torch: Any, part: list[Molecule]) -> tuple[Any, ...]:
    """Molecules of equal size: elements, mask, adjacency [molecule, target, kind, source], dipoles."""
    n = max(len(m[0]) for m in part)
    element, mask = np.zeros((len(part), n), np.int64), np.zeros((len(part), n), np.float32)
    adjacency = np.zeros((len(part), n, KINDS, n), np.float32)
    for i, m in enumerate(part):
        element[i, : len(m[0])], mask[i, : len(m[0])] = m[0], 1
        adjacency[i, m[2], m[3], m[1]] = 1
    return (*(torch.from_numpy(a) for a in (element, mask, adjacency)), torch.tensor([m[4] for m in part], dtype=torch.float32))


def network(torch: Any, hidden: int) -> dict[str, Any]:
    nn = torch.nn
    parts = {"embed": nn.Embedding(ELEMENTS, hidden), "gru": nn.GRUCell(hidden, hidden)}
    parts |= {"gate": nn.Linear(hidden + ELEMENTS, hidden), "value": nn.Linear(hidden, hidden)}
    parts |= {"inner": nn.Linear(hidden, hidden), "last": nn.Linear(hidden, 1)}
    parts["w"] = nn.Parameter(torch.randn(KINDS, hidden, hidden) / hidden**0.5)
    parts["b"] = nn.Parameter(torch.zeros(KINDS, hidden))
    return parts


def shares(torch: Any, net: dict[str, Any], h: Any, element: Any) -> Any:
    """What each atom adds to the vector of its molecule."""
    feature = torch.nn.functional.one_hot(element.reshape(-1), ELEMENTS).float()
    return torch.sigmoid(net["gate"](torch.cat([h, feature], 1))) * torch.tanh(net["value"](h))


def read_out(torch: Any, net: dict[str, Any], whole: Any) -> Any:
    return net["last"](torch.relu(net["inner"](whole))).squeeze(1)


def sparse_form(torch: Any, net: dict[str, Any], hidden: int, form: str) -> Any:
    """Forward over a joined graph; messages by one product over summed sources, or by one product for each kind."""
    w, b = net["w"], net["b"]

    def messages(h: Any, source: Any, target: Any, cell: Any, bias: Any, cuts: list[int]) -> Any:
        at_source = h.index_select(0, source)
        if form == "summed":
            summed = torch.zeros(len(h) * KINDS, hidden).index_add(0, cell, at_source)
            return torch.addmm(bias, summed.view(len(h), KINDS * hidden), w.view(KINDS * hidden, hidden))
        sent = [at_source[a:z] @ w[k] for k, (a, z) in enumerate(itertools.pairwise(cuts)) if z > a]
        return bias.index_add(0, target, torch.cat(sent))

    def forward(element: Any, source: Any, target: Any, cell: Any, count: Any, owner: Any, cuts: list[int], y: Any) -> Any:
        h = net["embed"](element)
        bias = count @ b
        for _ in range(ROUNDS):
            h = net["gru"](messages(h, source, target, cell, bias, cuts), h)
        return read_out(torch, net, torch.zeros(len(y), hidden).index_add(0, owner, shares(torch, net, h, element)))

    return forward


def full_form(torch: Any, net: dict[str, Any], hidden: int, form: str) -> Any:
    """Forward over padded molecules: a batched product with the adjacency, or with the NH x NH matrix of each molecule."""
    w, b = net["w"], net["b"]

    def forward(element: Any, mask: Any, adjacency: Any, y: Any) -> Any:
        m, n = element.shape
        h = net["embed"](element).view(m * n, hidden)
        bias = (adjacency.sum(3) @ b).view(m * n, hidden)
        if form == "dense":
            blocks = torch.einsum("mtks,kxy->mtysx", adjacency, w).reshape(m, n * hidden, n * hidden)
        else:
            flat, wide = adjacency.reshape(m, n, KINDS * n), w.permute(1, 0, 2).reshape(hidden, KINDS * hidden)
        for _ in range(ROUNDS):
            if form == "dense":
                a = torch.bmm(blocks, h.view(m, n * hidden, 1))
            else:
                sent = (h @ wide).view(m, n, KINDS, hidden).transpose(1, 2).reshape(m, KINDS * n, hidden)
                a = torch.bmm(flat, sent)
            h = net["gru"](a.reshape(m * n, hidden) + bias, h)
        return read_out(torch, net, (shares(torch, net, h, element).view(m, n, hidden) * mask.unsqueeze(2)).sum(1))

    return forward


def rival(data: str, form: str, hidden: int, threads: int, compiled: bool = False, infer: bool = False) -> Any:
    torch = prepare(threads)
    size, kind = FORMS[form]
    all_of_them = molecules(data)[: 2000 if kind != "dense" else 200]
    make = joined if kind in ("summed", "kinds") else padded
    batches = [make(torch, all_of_them[i : i + size]) for i in range(0, len(all_of_them) - size + 1, size)]
    net = network(torch, hidden)
    forward = (sparse_form if kind in ("summed", "kinds") else full_form)(torch, net, hidden, kind)
    if compiled:
        forward = torch.compile(forward, dynamic=True)
    if infer:
        return Calls(torch, batches, [size] * len(batches), lambda b: forward(*b))
    parameters = [q for p in net.values() for q in ([p] if isinstance(p, torch.nn.Parameter) else p.parameters())]
    every = UPDATE if size == 1 else 1

    def step(b: tuple[Any, ...]) -> Any:
        loss = ((forward(*b) - b[-1]) ** 2).mean()
        (loss / every if every > 1 else loss).backward()
        return loss.detach()

    return Steps(batches, [size] * len(batches), step, updater(torch.optim.Adam(parameters, lr=1e-3, fused=True)), every)


def pyg_rival(data: str, batch: int, hidden: int, threads: int) -> Steps:
    """PyTorch Geometric: RGCNConv sums over the four types, its Batch joins the molecules."""
    torch = prepare(threads)
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import RGCNConv, global_add_pool

    def data_of(m: Molecule) -> Any:
        element, source, target, kind, dipole = (torch.as_tensor(x) for x in m)
        return Data(x=element, edge_index=torch.stack([source, target]), edge_type=kind, y=dipole.float().view(1))

    them = [data_of(m) for m in molecules(data)[:2000]]
    batches = [Batch.from_data_list(them[i : i + batch]) for i in range(0, len(them) - batch + 1, batch)]
    net = network(torch, hidden)
    along = RGCNConv(hidden, hidden, KINDS, aggr="add", root_weight=False)
    parameters = [q for name, p in net.items() if name not in ("w", "b") for q in p.parameters()] + list(along.parameters())

    def step(b: Any) -> Any:
        h = net["embed"](b.x)
        for _ in range(ROUNDS):
            h = net["gru"](along(h, b.edge_index, b.edge_type), h)
        y = read_out(torch, net, global_add_pool(shares(torch, net, h, b.x), b.batch))
        loss = ((y - b.y) ** 2).mean()
        loss.backward()
        return loss.detach()

    return Steps(batches, [batch] * len(batches), step, updater(torch.optim.Adam(parameters, lr=1e-3, fused=True)))


def contenders(data: str, hidden: int, compiled: bool, quick: bool) -> list[Contender]:
    made = []
    for form, threads in (
        ("one molecule", 1), ("20, a product per kind", 1), ("100, sources summed first", 1), ("20 dense NH x NH", 1),
        ("20, sources summed first", 2), ("20, a product per kind", 2), ("100, sources summed first", 2), ("20 padded", 2),
    ):  # fmt: skip
        if "dense" in form and quick and hidden > 100:
            continue
        arguments: dict[str, Any] = {"data": data, "form": form, "hidden": hidden, "threads": threads}
        made.append(Contender(f"torch {form}, {words(threads)}", rival, arguments, threads))
        if compiled and form.startswith("100"):
            made.append(Contender(f"torch {form}, compiled, {words(threads)}", rival, {**arguments, "compiled": True}, threads))
    made.append(Contender("torch 100 with PyG, 2 threads", pyg_rival, {"data": data, "batch": 100, "hidden": hidden, "threads": 2}, 2))
    made += ours(MODEL, data, settings=settings(hidden), second=(1,))
    return made + ours(MODEL, data, (2,), "two copies", settings=copied(settings(hidden)), second=(2,))


def goals(c: Comparison) -> list[Goal]:
    mine, best = c.best("ampc"), c.best("torch")
    found = [
        Goal(f"PyTorch's best ({best.removeprefix('torch ')})", c.ratio(mine, best), 2),
        Goal("PyTorch's best, by processor time, one core", c.ratio(c.best("ampc", "1 worker"), c.best("torch", "1 thread"), thrift=True), 2),
        Goal("PyTorch's best, without MKL", c.ratio(c.best("ampc openblas"), best), 2),
        Goal("two workers against one", c.ratio(c.best("ampc", "2 workers"), c.best("ampc", "1 worker")), 1.8),
    ]
    return found + [Goal("the dense NH x NH form", c.ratio(mine, f.name), 100) for f in c.figures if f.windows and "dense" in f.name]


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("--hidden", type=int, nargs="+", default=[100, 200], help="columns of the state")
    a = p.parse_args(argv)
    made, reached = [], []
    for hidden in a.hidden:
        them = wanted(contenders(folder(), hidden, a.compile, a.quick), a.only)
        made.append(compare(f"Gated graph network on QM9, hidden {hidden}", "molecules/s", them, **lengths(a)))
        reached += [Goal(f"{g.what}, hidden {hidden}", g.value, g.bound) for g in goals(made[-1])]
    publish("ggsnn", made, reached, write=a.write)
    return made


if __name__ == "__main__":
    main(sys.argv[1:])
