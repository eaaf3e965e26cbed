"""Random programs over nested axes: loops over the children of an element, sums and softmax over them, values of several widths, every loss.

Complements `generated`, whose values all have three columns. A value is an expression with its number of columns; `Place` knows what is open.
"""

from __future__ import annotations

import dataclasses
import random

HEAD = """model nested(size = 2):
    instance:
        axis word, char[word], link
        letter: int[char] < 4
        mark: int[char] < 3 or none
        f: float[char, 2]
        peer: char[char] or none
        g: float[word, size]
        next: word[word] or none
        before: word[word] or none
        source, target: word[link]
        big: flag[word]
        tag: int[word] < 3
        t: float[word]
        lt: float[link]
        label: int < 3
        maybe: int < 3 or none
        y: float or none
        yes: flag
        v: float[3]

    emb = Embedding(4, size)
    tags = Embedding(3, 2, init = normal)
    l2 = Linear(2, 2)
    l22 = Linear(4, 2)
    l23 = Linear(2, 3)
    l31 = Linear(3, 1)
    l32 = Linear(3, 2, bias = false)
    l21 = Linear(2, 1)
    kind = Linear(2, 2) for k in 3
    norm = LayerNorm(2)

    def mixed(p, q, much = 0.5):
        r = sigmoid(l22([p, q]))
        return much * r * p + (1 - r) * q

"""


@dataclasses.dataclass
class Place:
    """What an expression may use: names of rows of two columns, of values over words and over characters, and the open elements."""

    rows: list[str]
    words: list[str]
    chars: list[str]
    word: str = ""
    char: str = ""
    link: str = ""
    kind: str = ""
    depth: int = 0

    def inner(self, **changes: object) -> Place:
        made = dataclasses.replace(self, rows=list(self.rows), words=list(self.words), chars=list(self.chars), depth=self.depth + 1)
        return dataclasses.replace(made, **changes)

    @property
    def plain(self) -> bool:
        return not (self.word or self.char or self.link)


class Writer:
    """Writes one program from the draws of `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.names = 0

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def put(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def program(self) -> str:
        place = Place([], ["g"], ["f"])
        self.put(1, f"h = l32(v) * {self.rng.choice(['1', '0.5', 'one_hot(label, 3)[0:2]'])}")
        place.rows.append("h")
        for _ in range(self.rng.randint(2, 4)):
            self.statement(place, 1)
        self.losses(place, 1, 2)
        if self.rng.random() < 0.5:
            self.put(1, f"loss squared(sum({self.row(place, 2)}), y)")
        whole = self.rng.choice(place.words)
        self.put(1, f"q = {whole} + 0")
        self.put(1, "output q")
        self.put(1, f"output last = {self.row(place, 1)}")
        return HEAD + "\n".join(self.lines) + "\n"

    def losses(self, p: Place, indent: int, depth: int) -> None:
        """Write a loss and perhaps a metric of a value at hand."""
        weight = self.rng.choice(["", "", ", weight = 0.5"])
        match self.rng.randrange(7):
            case 0:
                self.put(indent, f"loss cross_entropy(l23({self.row(p, depth)}), {self.rng.choice(['label', 'maybe'])}{weight})")
            case 1:
                self.put(indent, f"loss {self.rng.choice(['squared', 'absolute'])}(l21({self.row(p, depth)}), {self.target(p)}{weight})")
            case 2:
                self.put(indent, f"loss huber(l21({self.row(p, depth)}), {self.target(p)}, delta = 0.7{weight})")
            case 3:
                self.put(indent, f"loss binary_cross_entropy(l21({self.row(p, depth)}), yes{weight})")
            case 4:
                name = self.fresh("m")
                self.put(indent, f"{name} = l23({self.row(p, depth)})")
                self.put(indent, f"metric accuracy({name}, {self.rng.choice(['label', 'maybe'])})")
                self.put(indent, f"loss cross_entropy({name}, label)")
            case 5:
                name = self.fresh("m")
                self.put(indent, f"{name} = l21({self.row(p, depth)})")
                self.put(indent, f"metric {self.rng.choice(['absolute_error', 'squared_error', 'root_mean_square_error'])}({name}, {self.target(p)})")
                self.put(indent, f"loss squared({name}, sum({self.row(p, 1)}), weight = 0.3)")
            case _:
                self.put(indent, f"loss squared({self.row(p, depth)}, {self.row(p, 1)}{weight})")

    def target(self, p: Place) -> str:
        found = ["y", "y"]
        if p.word:
            found += [f"t[{p.word}]"] * 3
        if p.link:
            found += [f"lt[{p.link}]"] * 3
        return self.rng.choice(found)

    # ------------------------------------------------------------------------------------------------ expressions

    def row(self, p: Place, depth: int) -> str:
        """Return an expression for a row of two columns."""
        leaves = [*p.rows, "ones(2)", "v[0:2]", "v[1:3]"]
        if p.char:
            leaves += [f"{c}[{p.char}]" for c in p.chars] * 2 + [f"emb(letter[{p.char}])", f"one_hot(mark[{p.char}], 3)[0:2]", f"tags(mark[{p.char}])"]
        if p.word:
            leaves += [f"{w}[{p.word}]" for w in p.words] * 2 + [f"{w}[{i}[{p.word}]]" for w in p.words for i in ("next", "before")]
            leaves += [f"tags(tag[{p.word}])"]
            if not p.char:
                leaves += [f"{how}(char, {c})" for c in p.chars for how in ("sum", "mean", "max")] + ["mean(char, emb(letter))"]
                leaves += [f"sum(char, softmax(char, l21({p.chars[-1]})) * {p.chars[0]})"]
        if p.link:
            leaves += [f"{w}[{i}[{p.link}]]" for w in p.words for i in ("source", "target")] * 2
        if p.plain:
            leaves += [f"{how}(word, {w})" for w in p.words for how in ("sum", "mean", "max")]
            leaves += [f"sum(word, softmax(word, l21({p.words[-1]})) * {p.words[0]})", "sum(word, tags(tag))"]
        if depth <= 0 or self.rng.random() < 0.2:
            return self.rng.choice(leaves)
        q = self.row(p, depth - 1)
        match self.rng.randrange(13):
            case 0:
                return f"{self.rng.choice(['tanh', 'relu', 'sigmoid', 'norm', 'elu', 'gelu', 'softplus', 'leaky_relu', 'softmax'])}({q})"
            case 1 | 2:
                return f"l2({q})" if not p.kind else f"kind[{p.kind}]({q})"
            case 3:
                return f"l22([{q}, {self.row(p, depth - 1)}])"
            case 4:
                return f"({q} {self.rng.choice('+-*')} {self.row(p, depth - 1)})"
            case 5:
                return f"l32([l21({q}), {self.row(p, depth - 1)}])"
            case 6:
                return f"pad({q}[0:1], 2)"
            case 7:
                return f"({self.row(p, depth - 1)} * l21({q}))"
            case 8:
                return f"mixed({q}, {self.row(p, depth - 1)})"
            case 9:
                return f"{self.rng.choice(['minimum', 'maximum'])}({q}, {self.row(p, depth - 1)})"
            case 10:
                return f"({q} * dot({self.row(p, depth - 1)}, tanh({q})))"
            case 11:
                return f"l32(log_softmax(l23({q})))"
            case _:
                return f"({q} / (1 + exp(clip({self.row(p, depth - 1)}, -2, 2))))"

    # -------------------------------------------------------------------------------------------------- statements

    def statement(self, p: Place, indent: int) -> None:
        kinds = ["assign"]
        if p.depth < 3:
            kinds += ["loop", "branch", "computed", "while"]
            if p.plain:
                kinds += ["each_word", "each_char", "each_link", "whole", "visit"] * 2
            if p.word and not p.char:
                kinds += ["loop_chars"] * 3 + ["own"]
        getattr(self, f"_{self.rng.choice(kinds)}")(p, indent)

    def block(self, p: Place, indent: int, most: int = 2) -> None:
        for _ in range(self.rng.randint(1, most)):
            self.statement(p, indent)

    def _assign(self, p: Place, indent: int) -> None:
        name = self.fresh("h")
        self.put(indent, f"{name} = {self.row(p, 2)}")
        p.rows.append(name)

    def _whole(self, p: Place, indent: int) -> None:
        """A value over all words or characters at once."""
        name = self.fresh("u")
        if self.rng.random() < 0.5:
            w = self.rng.choice(p.words)
            self.put(indent, f"{name} = {self.rng.choice([f'tanh(l2({w}))', f'{w} * l21({w})', f'{w} + {p.rows[-1]}', f'norm({w} - tags(tag))'])}")
            p.words.append(name)
        else:
            c = self.rng.choice(p.chars)
            self.put(indent, f"{name} = {self.rng.choice([f'tanh(l2({c}))', f'l22([{c}, emb(letter)])', f'{c} * {p.rows[-1]}'])}")
            p.chars.append(name)

    def _loop(self, p: Place, indent: int) -> None:
        name, t = self.fresh("h"), self.fresh("w")
        self.put(indent, f"{name} = {self.row(p, 1)}")
        domains = ["range(2)", "range(0)", "range(1)"] + (["word", "reversed(word)", "char", "reversed(char)", "link"] if p.plain else ["word", "link"] if p.link else [])
        domain = self.rng.choice(domains)
        self.put(indent, f"loop {t} in {domain} carry {name}:")
        opened = {"word": t} if "word" in domain else {"char": t} if "char" in domain else {"link": t} if "link" in domain else {}
        inner = p.inner(**opened)
        inner.rows.append(name)
        self.block(inner, indent + 1)
        if self.rng.random() < 0.3:
            self.losses(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)})")
        p.rows.append(name)

    def _loop_chars(self, p: Place, indent: int) -> None:
        name, t = self.fresh("h"), self.fresh("c")
        self.put(indent, f"{name} = {self.row(p, 1)}")
        self.put(indent, f"loop {t} in {self.rng.choice(['char', 'reversed(char)'])} carry {name}:")
        inner = p.inner(char=t, chars=["f"])  # what lies over all characters cannot be read inside one word
        inner.rows.append(name)
        if self.rng.random() < 0.5:
            self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)} + {name})")
        p.rows.append(name)

    def _own(self, p: Place, indent: int) -> None:
        """Rows over the characters of one word, made there, gathered by an index field that may lead to another word's."""
        name, total = self.fresh("o"), self.fresh("h")
        self.put(indent, f"{name} = {self.rng.choice(['tanh(l2(f))', 'l22([f, emb(letter)])', 'f * 2', f'f + {self.row(p, 0)}'])}")
        self.put(indent, f"{total} = {self.rng.choice(['sum', 'mean', 'max'])}(char, {self.rng.choice([name, f'{name}[peer]', f'{name} * {name}[peer]', f'softmax(char, {name}) * f'])})")
        p.rows.append(total)

    def _while(self, p: Place, indent: int) -> None:
        name = self.fresh("h")
        self.put(indent, f"{name} = {self.row(p, 1)}")
        self.put(indent, f"loop while l21({name}) < {self.rng.choice(['0.3', f'l21({self.row(p, 1)})'])} at most {self.rng.randint(1, 3)} carry {name}:")
        inner = p.inner()
        inner.rows.append(name)
        self.put(indent + 1, f"{name} = {name} * 0.7 + 0.2 * tanh({self.row(inner, 2)})")
        p.rows.append(name)

    def _arms(self, p: Place, indent: int, keys: list[str], field: bool = True) -> None:
        name = self.fresh("h")
        for key in keys:
            self.put(indent + 1, f"{key}:")
            inner = p.inner(chars=list(p.chars) if field else ["f"])  # in an arm of a computed branch, sums over a word's characters take fields alone
            if self.rng.random() < 0.4:
                self.block(inner, indent + 2, 1)
            if self.rng.random() < 0.2:
                self.losses(inner, indent + 2, 1)
            self.put(indent + 2, f"{name} = {self.row(inner, 2)}")
        self.put(indent, f"merge {name}")
        p.rows.append(name)

    def _branch(self, p: Place, indent: int) -> None:
        choices = [("label", ["0", "1, 2"]), ("maybe", ["none", "0", "else"]), ("yes", ["true", "false"]), ("y", ["none", "else"])]
        if p.char:
            choices += [(f"mark[{p.char}]", ["none", "0", "else"]), (f"letter[{p.char}]", ["0, 3", "else"])] * 2
        if p.word:
            choices += [(f"big[{p.word}]", ["true", "false"]), (f"next[{p.word}]", ["none", "else"]), (f"tag[{p.word}]", ["1", "2", "else"])] * 2
        if p.link:
            choices += [(f"big[source[{p.link}]]", ["true", "else"]), (f"next[target[{p.link}]]", ["none", "else"])] * 2
        selector, keys = self.rng.choice(choices)
        self.put(indent, f"branch {selector}:")
        self._arms(p, indent, keys)

    def _computed(self, p: Place, indent: int) -> None:
        if self.rng.random() < 0.5:
            self.put(indent, f"branch l21({self.row(p, 1)}) > 0.1:")
            self._arms(p, indent, ["true", "else"], field=False)
            return
        name, k = self.fresh("h"), self.fresh("k")
        self.put(indent, f"branch {self.rng.choice([f'argmax(l23({self.row(p, 1)}))', 'label', *([f'tag[{p.word}]'] * 2 if p.word else [])])} as {k}:")
        self.put(indent + 1, f"{name} = kind[{k}]({self.row(p.inner(kind=k), 1)})")
        self.put(indent, f"merge {name}")
        p.rows.append(name)

    def _each_word(self, p: Place, indent: int) -> None:
        w, name = self.fresh("w"), self.fresh("u")
        self.put(indent, f"each {w} in word:")
        inner = p.inner(word=w)
        self.block(inner, indent + 1)
        if self.rng.random() < 0.4:
            self.losses(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = {self.row(inner, 2)}")
        p.words.append(name)

    def _each_char(self, p: Place, indent: int) -> None:
        c, name = self.fresh("c"), self.fresh("s")
        self.put(indent, f"each {c} in char:")
        inner = p.inner(char=c)
        self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = {self.row(inner, 2)}")
        p.chars.append(name)

    def _each_link(self, p: Place, indent: int) -> None:
        e, name = self.fresh("e"), self.fresh("u")
        self.put(indent, f"each {e} in link:")
        inner = p.inner(link=e)
        self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name}[{self.rng.choice(['source', 'target'])}[{e}]] {self.rng.choice(['+=', '+=', 'mean=', 'max='])} {self.row(inner, 2)}")
        p.words.append(name)

    def _visit(self, p: Place, indent: int) -> None:
        w, name = self.fresh("w"), self.fresh("u")
        self.put(indent, f"visit {w} in word after before[{w}] carry {name}:")
        inner = p.inner(word=w)
        first = self.fresh("h")
        self.put(indent + 1, f"{first} = tanh({self.row(inner, 1)} + {name}[before[{w}]])")
        inner.rows.append(first)
        self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)})")
        p.words.append(name)


def generate(rng: random.Random) -> str:
    """Return a random program."""
    return Writer(rng).program()
