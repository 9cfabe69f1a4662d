"""Queries as trees: how one is written in either dialect, and how it is made smaller. It knows nothing of chance.

A part of a tree is a text, a list of parts, or a node. `FIRST(` and `LAST(` in texts are aggregates that the dialects
name differently.
"""

import copy
import dataclasses

DIALECTS = {
    "duckdb": {"FIRST(": "first(", "LAST(": "last("},
    "roundel": {"FIRST(": "first_value(", "LAST(": "last_value("},
}


def text(part, dialect):
    """A part as SQL."""
    if isinstance(part, str):
        for name, meant in DIALECTS[dialect].items():
            part = part.replace(name, meant)
        return part
    if isinstance(part, (list, tuple)):
        return "".join(text(one, dialect) for one in part)
    return part.text(dialect)


def joined(parts, between, dialect):
    return between.join(text(part, dialect) for part in parts)


@dataclasses.dataclass
class Ordered:
    """What queries and set operations share."""
    ctes: list = dataclasses.field(default_factory=list, kw_only=True)
    recursive: bool = dataclasses.field(default=False, kw_only=True)
    order: list = dataclasses.field(default_factory=list, kw_only=True)
    # Whether the order leaves only equal rows in any order.
    total: bool = dataclasses.field(default=False, kw_only=True)
    limit: object = dataclasses.field(default=None, kw_only=True)
    offset: object = dataclasses.field(default=None, kw_only=True)

    def text(self, dialect):
        parts = []
        if self.ctes:
            parts.append(f"WITH {'RECURSIVE ' * self.recursive}{joined(self.ctes, ', ', dialect)}")
        parts.append(self.body(dialect))
        if self.order:
            parts.append(f"ORDER BY {joined(self.order, ', ', dialect)}")
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        if self.offset is not None:
            parts.append(f"OFFSET {self.offset}")
        return " ".join(parts)

    def cuts(self):
        """Ways to make this node smaller: each changes it in place. An answer remains fixed, if it was."""
        def set_to(**fields):
            def change():
                for name, value in fields.items():
                    setattr(self, name, value)
            return change

        def without(parts, at):
            return lambda: parts.pop(at)

        if self.limit is not None or self.offset is not None:
            yield set_to(limit=None, offset=None, order=[], total=False)
        elif self.order:
            yield set_to(order=[], total=False)
        if self.offset is not None and self.limit is not None:
            yield set_to(offset=None)
        for parts in self.lists():
            for at in range(len(parts)):
                yield without(parts, at)

    def lists(self):
        return [self.ctes]


@dataclasses.dataclass
class Select(Ordered):
    """SELECT."""
    items: list = dataclasses.field(default_factory=list)
    source: object = None
    where: list = dataclasses.field(default_factory=list)
    group: list = dataclasses.field(default_factory=list)
    having: list = dataclasses.field(default_factory=list)
    distinct: object = ""
    # A scalar subquery that may have several rows.
    risky: bool = False

    def body(self, dialect):
        parts = ["SELECT ", self.distinct, joined(self.items, ", ", dialect)]
        if self.source is not None:
            parts += [" FROM ", self.source]
        for word, conditions in (("WHERE", self.where), ("HAVING", self.having)):
            if word == "HAVING" and self.group:
                parts.append(f" GROUP BY {joined(self.group, ', ', dialect)}")
            if conditions:
                parts.append(f" {word} " + " AND ".join(f"({text(one, dialect)})" for one in conditions))
        return text(parts, dialect)

    def cuts(self):
        yield from super().cuts()
        if self.order and not self.distinct and len(self.items) == len(self.order) > 1:
            # Ordered by all its columns, it can lose one in both places.
            for at, item in enumerate(self.items):
                name = text(item, "roundel").rsplit(" AS ", 1)[-1] + " "
                rest = [one for one in self.order if not text(one, "roundel").startswith(name)]
                if len(rest) == len(self.order) - 1:
                    yield lambda at=at, rest=rest: (self.items.pop(at), setattr(self, "order", rest))
        if self.distinct == "DISTINCT ":
            yield lambda: setattr(self, "distinct", "")
        if isinstance(self.source, Join):
            yield lambda: setattr(self, "source", self.source.left)
            yield lambda: setattr(self, "source", self.source.right)

    def lists(self):
        # What is ordered by all of its columns needs them all.
        free = [] if self.order or len(self.items) < 2 else [self.items]
        return [*super().lists(), self.where, self.having, *free]


@dataclasses.dataclass
class SetOperation(Ordered):
    """UNION and the like."""
    name: str = ""
    left: object = None
    right: object = None

    def __init__(self, name, left, right):
        super().__init__()
        self.name, self.left, self.right = name, left, right

    def body(self, dialect):
        return f"{self.side(self.left, dialect)} {self.name} {self.side(self.right, dialect)}"

    @staticmethod
    def side(query, dialect):
        plain = text(query, dialect)
        alone = isinstance(query, Select) and not (query.ctes or query.order)
        return plain if alone else f"({plain})"


@dataclasses.dataclass
class Join:
    """A join in FROM; one of several at the right is put in parentheses."""
    kind: str
    left: object
    right: object
    on: list

    def text(self, dialect):
        right = text(self.right, dialect)
        if isinstance(self.right, Join):
            right = f"({right})"
        on = f" ON {' AND '.join(f'({text(one, dialect)})' for one in self.on)}" if self.on else ""
        return f"{text(self.left, dialect)} {self.kind} {right}{on}"

    def cuts(self):
        if len(self.on) > 1:
            for at in range(len(self.on)):
                yield lambda at=at: self.on.pop(at)
        for side in ("left", "right"):
            if isinstance(getattr(self, side), Join):
                yield lambda side=side: setattr(self, side, getattr(self, side).left)
                yield lambda side=side: setattr(self, side, getattr(self, side).right)


def nodes(part):
    """All nodes of a tree, from the top."""
    if isinstance(part, (list, tuple)):
        for one in part:
            yield from nodes(one)
    elif dataclasses.is_dataclass(part):
        yield part
        for field in dataclasses.fields(part):
            yield from nodes(getattr(part, field.name))


def smaller(tree):
    """Smaller trees than this one, those first that have lost most. Not all are valid SQL."""
    for node in list(nodes(tree))[1:]:
        if isinstance(node, Ordered):
            yield copy.deepcopy(node)
    for number, node in enumerate(list(nodes(tree))):
        for cut in range(len(list(node.cuts()))):
            changed = copy.deepcopy(tree)
            list(list(nodes(changed))[number].cuts())[cut]()
            yield changed
