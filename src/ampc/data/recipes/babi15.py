"""bAbI task 15, basic deduction, as graphs: the real folds, and larger graphs made by the same rule.

An individual `is` of a species, a species `has_fear` of another; the answer to "what does the individual fear?" is two edges away.
"""

from __future__ import annotations

import dataclasses
import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ampc.data.recipes.base import Option, Product, Recipe, damaged, source_file
from ampc.data.write import ragged
from ampc.diagnostics import error

FIELDS = """One question a row, over the nodes and edges of its graph:

- `asked`: over the nodes, 1 at the node that is asked about, else 0; `question`: the same as a position.
- `name`: over the nodes, their number from 0. A model needs it only to turn a score for each node into a choice.
- `source`, `target`, `kind`: over the edges; kind 0 is `is`, 1 is `has_fear`. With `both_ways`, every edge is there backwards too, as kind 2 or 3.
- `answer`: the number of the node that answers.
"""

README = """# bAbI 15, basic deduction

Made by `ampc data babi15` from the symbolic graphs of the ten folds. {fields}
A story has 8 nodes, 8 edges and 4 questions, each of which is an instance. `train.parquet` has the first `train` training stories of the fold.
Without `holdout`, `valid.parquet` has the 1,000 test stories; with it, the last `holdout` training stories, and the test stories are `test.parquet`.
In two folds (3 and 8) the numbers of the two kinds are exchanged in the original; here they mean the same everywhere, told by which of
them answers the questions.
""".replace("{fields}", FIELDS)

INFLATED = """# bAbI 15, larger graphs

Made by `ampc data babi15_inflated`: the deduction of bAbI 15 in graphs of `nodes` nodes (54, as in the AMPNet paper, whose own generator
isn't published). {fields}
Half the nodes are individuals, half are species. Each individual `is` of one species, no two of the same (as in the original); each species
`has_fear` of one other species, drawn uniformly. Nodes are numbered at random in each story and the edges shuffled, so that a number says nothing.
`questions` different individuals of each story are asked about. A guess among the species is right once in half the number of nodes.
""".replace("{fields}", FIELDS)

MAX_BYTES = 16 << 20


@dataclasses.dataclass(slots=True)
class Story:
    """Edges (source, kind, target) and questions (node, answer), nodes from 0."""

    nodes: int
    edges: list[tuple[int, int, int]]
    questions: list[tuple[int, int]]


def read_stories(path: Path) -> list[Story]:
    """Return the stories of a file; kinds are 0 for `is` and 1 for `has_fear`. Raises AmpError (AMP822) naming the line."""
    stories: list[Story] = []
    edges: list[tuple[int, int, int]] = []
    questions: list[tuple[int, int]] = []
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise damaged(path, f"it is larger than {MAX_BYTES >> 20} MB")
        lines = data.decode("ascii").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as failure:
        raise damaged(path, str(failure).lower()) from None
    for number, line in enumerate([*lines, ""], 1):
        words = line.split()
        try:
            if not words:
                if edges or questions:
                    stories.append(_story(edges, questions))
                edges, questions = [], []
            elif words[0] == "?":
                _, _, node, answer = words
                questions.append((int(node) - 1, int(answer) - 1))
            else:
                source, kind, target = map(int, words)
                edges.append((source - 1, kind - 1, target - 1))
        except ValueError as why:
            raise damaged(path, f"line {number}: {why if 'story' in str(why) else 'expected `s e t` or `? q n a`'}") from None
    if not stories:
        raise damaged(path, "it has no story")
    return _named_kinds(path, stories)


def _story(edges: list[tuple[int, int, int]], questions: list[tuple[int, int]]) -> Story:
    ends = [x for s, _, t in edges for x in (s, t)] + [x for q in questions for x in q]
    if min(ends) < 0 or not edges or not questions or not {k for _, k, _ in edges} <= {0, 1}:
        raise ValueError("the story before it lacks edges or questions, or has numbers that are too small or kinds beyond 1 and 2")
    return Story(max(ends) + 1, edges, questions)


def _named_kinds(path: Path, stories: list[Story]) -> list[Story]:
    """Return the stories with kind 0 the edge that a deduction takes first, whichever number the file gave it."""
    for swap in (0, 1):
        turned = [Story(s.nodes, [(a, k ^ swap, b) for a, k, b in s.edges], s.questions) for s in stories]
        if all(answers(s) for s in turned):
            return turned
    raise damaged(path, "its answers don't follow from its edges, whichever of the two kinds is taken first")


def answers(story: Story) -> bool:
    """Whether every answer is the node that `is` and then `has_fear` lead to."""
    first = {a: b for a, k, b in story.edges if k == 0}
    second = {a: b for a, k, b in story.edges if k == 1}
    return all(second.get(first.get(q, -1)) == a for q, a in story.questions)


def table(stories: list[Story], both_ways: bool) -> Any:
    """Return one row for each question."""
    rows = [(s, q, a) for s in stories for q, a in s.questions]
    nodes = np.array([s.nodes for s, _, _ in rows])
    node_offsets = np.concatenate([[0], np.cumsum(nodes)])
    asked = np.zeros(node_offsets[-1], np.float32)
    asked[node_offsets[:-1] + np.array([q for _, q, _ in rows])] = 1
    name = np.arange(node_offsets[-1]) - np.repeat(node_offsets[:-1], nodes)
    edges = [s.edges + [(b, k + 2, a) for a, k, b in s.edges] if both_ways else s.edges for s, _, _ in rows]
    edge_offsets = np.cumsum([0] + [len(e) for e in edges])
    flat = np.array([x for e in edges for x in e], np.int32)
    columns = {"asked": ragged(node_offsets, pa.array(asked)), "name": ragged(node_offsets, pa.array(name.astype(np.int32)))}
    for field, i in (("source", 0), ("target", 2), ("kind", 1)):
        columns[field] = ragged(edge_offsets, pa.array(flat[:, i]))
    for field, i in (("question", 1), ("answer", 2)):
        columns[field] = pa.array([r[i] for r in rows], type=pa.int32())
    return pa.table(columns)


def build(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    fold = f"fold{options['fold']:02d}"
    train = read_stories(source_file(source, f"{fold}_train_graphs.txt.gz", f"{fold}_train_graphs.txt"))
    test = read_stories(source_file(source, f"{fold}_test_graphs.txt.gz", f"{fold}_test_graphs.txt"))
    n, hold, both = options["train"], options["holdout"], options["both_ways"]
    if n + hold > len(train):
        raise error("AMP820", f"`train` and `holdout` ask for {n} and {hold} stories, the fold has {len(train)}")
    if hold:
        tables = {"train": table(train[:n], both), "valid": table(train[-hold:], both), "test": table(test, both)}
    else:
        tables = {"train": table(train[:n], both), "valid": table(test, both)}
    return Product(tables, README, {"kinds": 4 if both else 2, "nodes": max(s.nodes for s in train + test)})


def inflate(rng: np.random.Generator, nodes: int, questions: int) -> Story:
    """Return a story of `nodes` nodes by the rule of the task, and so many questions."""
    half = nodes // 2
    number = rng.permutation(nodes).tolist()
    individuals, species = number[:half], number[half:]
    of = rng.permutation(half).tolist()
    fears = ((np.arange(half) + rng.integers(1, half, half)) % half).tolist()
    edges = [(individuals[i], 0, species[of[i]]) for i in range(half)] + [(species[j], 1, species[fears[j]]) for j in range(half)]
    asked = rng.choice(half, questions, replace=False).tolist()
    return Story(nodes, [edges[i] for i in rng.permutation(len(edges)).tolist()], [(individuals[i], species[fears[of[i]]]) for i in asked])


def build_inflated(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    nodes, questions = options["nodes"], options["questions"]
    if nodes % 2:
        raise error("AMP820", f"the option `nodes` is {nodes}, expected an even number", help="half of the nodes are individuals, half are species")
    if questions > nodes // 2:
        raise error("AMP820", f"the option `questions` is {questions}, but a story of {nodes} nodes has {nodes // 2} individuals")
    rng = np.random.default_rng(seed)
    tables = {split: table([inflate(rng, nodes, questions) for _ in range(options[split])], options["both_ways"]) for split in ("train", "valid")}
    return Product(tables, INFLATED, {"kinds": 4 if options["both_ways"] else 2, "nodes": nodes})


_BOTH = Option("both_ways", "flag", False, "add every edge backwards, as a kind of its own")

RECIPE = Recipe(
    "babi15",
    "two-step deduction in small graphs, from the ten published folds",
    True,
    build,
    (
        Option("fold", "int", 1, "which of the ten folds", 1, 10),
        Option("train", "int", 1000, "how many training stories (the GGNN paper: 50)", 1, 1000),
        Option("holdout", "int", 0, "how many of the last training stories to validate on; 0: validate on the test stories", 0, 999),
        _BOTH,
    ),
    model="babi15_ggsnn",
)
INFLATED_RECIPE = Recipe(
    "babi15_inflated",
    "two-step deduction in larger graphs, generated",
    False,
    build_inflated,
    (
        Option("nodes", "int", 54, "nodes of a graph, an even number", 4, 10_000),
        Option("train", "int", 1000, "how many training stories", 1, 1_000_000),
        Option("valid", "int", 250, "how many validation stories", 1, 1_000_000),
        Option("questions", "int", 4, "how many questions a story", 1, 5000),
        _BOTH,
    ),
    model="babi15_ggsnn",
)

__all__ = ["INFLATED_RECIPE", "RECIPE", "Story", "answers", "inflate", "read_stories", "table"]
