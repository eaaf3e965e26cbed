"""Random programs over nested axes: loops over the children of an element, sums and softmax over them, values of several widths, every loss and metric."""

from __future__ import annotations

from collections.abc import Sequence

from .writer import Place, Writer

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


class Words(Writer):
    head, columns, score = HEAD, 2, "l21"

    def start(self) -> Place:
        self.put(1, f"h = l32(v) * {self.pick('1', '0.5', 'one_hot(label, 3)[0:2]')}")
        return Place(["h"], {"word": ["g"], "char": ["f"]})

    def end(self, p: Place) -> None:
        self.judge(p, 1)
        if self.maybe(0.5):
            self.put(1, f"loss squared(sum({self.row(p, 2)}), y)")
        self.put(1, f"q = {self.rng.choice(p.over['word'])} + 0")
        self.put(1, "output q")
        self.put(1, f"output last = {self.row(p, 1)}")

    def judge(self, p: Place, indent: int) -> None:
        weight = self.pick("", "", ", weight = 0.5")
        targets = ["y", "y"] + [f"{name}[{p.open[axis]}]" for axis, name in (("word", "t"), ("link", "lt")) if axis in p.open] * 3
        row, target, label = self.row(p, 1), self.rng.choice(targets), self.pick("label", "maybe")
        match self.rng.randrange(8):
            case 0:
                self.put(indent, f"loss cross_entropy(l23({row}), {label}{weight})")
            case 1:
                self.put(indent, f"loss {self.pick('squared', 'absolute')}(l21({row}), {target}{weight})")
            case 2:
                self.put(indent, f"loss huber(l21({row}), {target}, delta = 0.7{weight})")
            case 3:
                self.put(indent, f"loss binary_cross_entropy(l21({row}), yes{weight})")
            case 4:
                name = self.fresh("m")
                self.put(indent, f"{name} = l23({row})")
                self.put(indent, f"metric accuracy({name}, {label})")
                self.put(indent, f"loss cross_entropy({name}, label)")
            case 5:
                name = self.fresh("m")
                self.put(indent, f"{name} = l21({row})")
                self.put(indent, f"metric {self.pick('absolute_error', 'squared_error', 'root_mean_square_error')}({name}, {target})")
                self.put(indent, f"loss squared({name}, sum({self.row(p, 1)}), weight = 0.3)")
            case 6:
                judged = self.pick(f"top_k(l23({row}), {label}, k = 2)", f"binary_accuracy(l21({row}), yes)", f"score({row})", f"error({row})")
                self.put(indent, f"metric {self.fresh('m')} = {judged}")
            case _:
                call = self.pick(f"squared({row}, {self.row(p, 1)}", f"squared({row}, 0.5", f"value(tanh({row})")
                self.put(indent, f"loss {call}{weight})")

    def leaves(self, p: Place) -> list[str]:
        words, chars = p.over["word"], p.over["char"]
        found = [*p.rows, "ones(2)", "v[0:2]", "v[1:3]"]
        if c := p.open.get("char"):
            found += [f"{x}[{c}]" for x in chars] * 2 + [f"emb(letter[{c}])", f"one_hot(mark[{c}], 3)[0:2]", f"tags(mark[{c}])", f"v[0:2] * number({c})"]
        if w := p.open.get("word"):
            found += [f"{x}[{w}]" for x in words] * 2 + [f"{x}[{i}[{w}]]" for x in words for i in ("next", "before")] + [f"tags(tag[{w}])"]
            if not p.open.get("char"):
                found += [f"{how}(char, {x})" for x in chars for how in ("sum", "mean", "max")] + ["mean(char, emb(letter))"]
                found += [f"sum(char, softmax(char, l21({chars[-1]})) * {chars[0]})"]
        if e := p.open.get("link"):
            found += [f"{x}[{i}[{e}]]" for x in words for i in ("source", "target")] * 2
        if p.plain:
            found += [f"{how}(word, {x})" for x in words for how in ("sum", "mean", "max")]
            found += [f"sum(word, softmax(word, l21({words[-1]})) * {words[0]})", "sum(word, tags(tag))"]
        return found

    def row(self, p: Place, depth: int) -> str:
        if depth <= 0 or self.maybe(0.2):
            return self.rng.choice(self.leaves(p))
        q = self.row(p, depth - 1)
        match self.rng.randrange(13):
            case 0:
                return f"{self.pick('tanh', 'relu', 'sigmoid', 'norm', 'elu', 'gelu', 'softplus', 'leaky_relu', 'softmax')}({q})"
            case 1 | 2:
                return f"kind[{p.member}]({q})" if p.member else f"l2({q})"
            case 3:
                return f"l22([{q}, {self.row(p, depth - 1)}])"
            case 4:
                return f"({q} {self.pick(*'+-*')} {self.row(p, depth - 1)})"
            case 5:
                return f"l32([l21({q}), {self.row(p, depth - 1)}])"
            case 6:
                return f"pad({q}[0:1], 2)"
            case 7:
                return f"({self.row(p, depth - 1)} * l21({q}))"
            case 8:
                return f"mixed({q}, {self.row(p, depth - 1)})"
            case 9:
                return f"{self.pick('minimum', 'maximum')}({q}, {self.row(p, depth - 1)})"
            case 10:
                return f"({q} * dot({self.row(p, depth - 1)}, tanh({q})))"
            case 11:
                return f"l32(log_softmax(l23({q})))"
            case _:
                return f"({q} / (1 + exp(clip({self.row(p, depth - 1)}, -2, 2))))"

    def statements(self, p: Place) -> list[str]:
        found = ["assign", "loop", "branch", "computed", "while", "members"]
        if p.plain:
            found += ["each_word", "each_char", "each_link", "whole", "visit"] * 2
        if "word" in p.open and "char" not in p.open:
            found += ["loop_chars"] * 3 + ["own"]
        return found

    def domains(self, p: Place) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = [("range(2)", ""), ("range(0)", ""), ("range(1)", "")]
        if p.plain:
            found += [(form, axis) for axis in ("word", "char") for form in (axis, f"reversed({axis})")]
        if set(p.open) <= {"link"} and "link" not in p.open:
            found += [("link", "link")]
        if set(p.open) == {"link"}:
            found += [("word", "word")]
        return found

    def selectors(self, p: Place) -> list[tuple[str, Sequence[str]]]:
        found: list[tuple[str, Sequence[str]]] = [("label", ["0", "1, 2"]), ("maybe", ["none", "0", "else"]), ("yes", ["true", "false"]), ("y", ["none", "else"])]
        if c := p.open.get("char"):
            found += [(f"mark[{c}]", ["none", "0", "else"]), (f"letter[{c}]", ["0, 3", "else"])] * 2
        if w := p.open.get("word"):
            found += [(f"big[{w}]", ["true", "false"]), (f"next[{w}]", ["none", "else"]), (f"tag[{w}]", ["1", "2", "else"])] * 2
        if e := p.open.get("link"):
            found += [(f"big[source[{e}]]", ["true", "else"]), (f"next[target[{e}]]", ["none", "else"])] * 2
        return found

    def families(self, p: Place) -> list[str]:
        return [f"argmax(l23({self.row(p, 1)}))", "label", *([f"tag[{p.open['word']}]"] * 2 if "word" in p.open else [])]

    def member(self, k: str, p: Place) -> str:
        return f"kind[{k}]({self.row(p, 1)})"

    # --------------------------------------------------------------------------------------------------- statements

    def _whole(self, p: Place, indent: int) -> None:
        """A value over all words or characters at once."""
        name = self.fresh("u")
        w, c, row = self.rng.choice(p.over["word"]), self.rng.choice(p.over["char"]), p.rows[-1]
        if self.maybe(0.5):
            self.put(indent, f"{name} = {self.pick(f'tanh(l2({w}))', f'{w} * l21({w})', f'{w} + {row}', f'norm({w} - tags(tag))')}")
            p.over["word"].append(name)
        else:
            self.put(indent, f"{name} = {self.pick(f'tanh(l2({c}))', f'l22([{c}, emb(letter)])', f'{c} * {row}')}")
            p.over["char"].append(name)

    def _loop_chars(self, p: Place, indent: int) -> None:
        """From character to character of the open word."""
        name, c = self._carry(p, indent), self.fresh("c")
        self.put(indent, f"loop {c} in {self.pick('char', 'reversed(char)')} carry {name}:")
        inner = p.inner(name, open={"char": c})
        if self.maybe(0.5):
            self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)} + {name})")
        p.rows.append(name)

    def _own(self, p: Place, indent: int) -> None:
        """Rows over the characters of one word, made there, gathered by an index field that may lead to another word's."""
        name, total = self.fresh("o"), self.fresh("h")
        self.put(indent, f"{name} = {self.pick('tanh(l2(f))', 'l22([f, emb(letter)])', 'f * 2', f'f + {self.row(p, 0)}')}")
        of = self.pick(name, f"{name}[peer]", f"{name} * {name}[peer]", f"softmax(char, {name}) * f")
        self.put(indent, f"{total} = {self.pick('sum', 'mean', 'max')}(char, {of})")
        p.rows.append(total)

    def _each_word(self, p: Place, indent: int) -> None:
        self.each("word", p, indent)

    def _each_char(self, p: Place, indent: int) -> None:
        self.each("char", p, indent)

    def _each_link(self, p: Place, indent: int) -> None:
        self.gather("link", "word", ("source", "target"), p, indent)

    def _visit(self, p: Place, indent: int) -> None:
        """Along the chain or tree that `before` makes."""
        w, name = self.fresh("w"), self.fresh("u")
        self.put(indent, f"visit {w} in word after before[{w}] carry {name}:")
        inner = p.inner(open={"word": w})
        first = self.fresh("h")
        self.put(indent + 1, f"{first} = tanh({self.row(inner, 1)} + {name}[before[{w}]])")
        inner.rows.append(first)
        self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)})")
        p.over["word"].append(name)
