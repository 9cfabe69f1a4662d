"""Random queries that Roundel and DuckDB define alike, as trees that can be made smaller.

Left out are what the two define differently, each for a reason: arithmetic that overflows, quotients of integers, sums
of floats that are not exact, orders that say nothing of NULLs, LIMIT that cuts without a total order, INTERSECT ALL and EXCEPT ALL.

Left out is also what DataFusion itself gets wrong, in one process too:
* correlated NOT IN (its issues 25336, 25347, 25480);
* columns that it takes for constant, and drops from an order, although outer joins and unions have other values in them
  (15886);
* conditions on a constant column that is NULL, over one row: it keeps the row.
"""

import dataclasses
import re

from query_tree import Join, Select, SetOperation
from random_expressions import Expressions
from random_tables import Column

# Rows that a join may have, by an estimate, and that a relation may have to be joined by other than an equality.
JOINED_MAX = 60_000
PAIRS_MAX = 1_500_000
# More rows than any relation has.
LIMIT_OF_ALL = 10_000_000
JOINS = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
OPERATIONS = ["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"]


@dataclasses.dataclass
class Relation:
    """What can stand in FROM: columns by their full names, and about how many rows."""
    tree: object
    columns: list
    rows: int


class Queries(Expressions):
    """Draws the queries of one seed over some tables."""

    def __init__(self, dice, tables):
        super().__init__(dice)
        self.tables = tables
        self.ctes = []
        # Names of columns that are constant.
        self.constants = set()
        # How many queries this one is within: what has a list as a column is not ordered, so it is within none.
        self.within = 0

    # What stands in FROM.

    def base(self, table=None):
        table = table or self.dice.choice(self.tables)
        alias = self.alias()
        columns = [dataclasses.replace(column, name=f"{alias}.{column.name}") for column in table.columns]
        return Relation(f"{table.name} AS {alias}", columns, table.rows)

    def inner(self, depth):
        self.within += 1
        drawn = self.query(depth)
        self.within -= 1
        return drawn

    def derived(self, depth):
        tree, columns, rows = self.inner(depth)
        alias = self.alias()
        columns = [dataclasses.replace(column, name=f"{alias}.{column.name}") for column in columns]
        return Relation(["(", tree, f") AS {alias}"], columns, rows)

    def common(self):
        name, columns, rows = self.dice.choice(self.ctes)
        alias = self.alias()
        columns = [dataclasses.replace(column, name=f"{alias}.{column.name}") for column in columns]
        return Relation(f"{name} AS {alias}", columns, rows)

    def literal_rows(self):
        alias = self.alias()
        rows = ", ".join(f"({n}, {self.dice.choice(['NULL', repr('a' + str(n)), repr('b')])})" for n in range(-1, 4))
        columns = [Column(f"{alias}.x", "int", 5, True), Column(f"{alias}.y", "text", 3)]
        return Relation(f"(VALUES (9, 'a0'), {rows}) AS {alias}(x, y)", columns, 6)

    def series(self):
        alias, last = self.alias(), self.dice.choice([0, 5, 300])
        return Relation(f"generate_series(0, {last}) AS {alias}(x)", [Column(f"{alias}.x", "int", last + 1, True)], last + 1)

    def source(self, depth):
        draws = [(12, self.base), (1, self.literal_rows), (1, self.series)]
        if depth > 0:
            draws += [(8, lambda: self.derived(depth - 1)), (8, lambda: self.joined(depth - 1))]
        if self.ctes:
            draws.append((10, self.common))
        return self.weighted(draws)()

    def joined(self, depth):
        left, right = self.source(depth), self.source(min(depth, 1))
        if self.dice.random() < 0.1 and isinstance(left.tree, str):
            again = next((table for table in self.tables if left.tree.startswith(f"{table.name} ")), None)
            right = self.base(again) if again else right
        pairs = [(one, other) for one in left.columns for other in right.columns if one.kind == other.kind]
        kind = self.dice.choice(JOINS)
        if min(left.rows, right.rows) <= 1 or any(column.constant for column in left.columns + right.columns):
            kind = "JOIN"
        self.dice.shuffle(pairs)
        # Keys first that few rows share.
        pairs.sort(key=lambda pair: -max(pair[0].distinct, pair[1].distinct))
        product = left.rows * right.rows
        equal = next(iter(pairs[:self.dice.randint(1, 3)][-1:]), None)
        rows = product // max(1, max(equal[0].distinct, equal[1].distinct)) if equal else product
        if product <= PAIRS_MAX and self.dice.random() < 0.5 or equal is None or rows > JOINED_MAX:
            if product > PAIRS_MAX:
                return left if left.rows < right.rows else right
            if product < JOINED_MAX and self.dice.random() < 0.15:
                return self.combined("CROSS JOIN", left, right, [], product)
            on = [self.compared(left, right)]
            rows = product // 3
        else:
            on = [f"{equal[0].name} = {equal[1].name}"]
            if self.dice.random() < 0.15:
                more = self.dice.choice(pairs)
                on.append(f"{more[0].name} = {more[1].name}")
            if self.dice.random() < 0.25:
                on.append(self.compared(left, right))
        if self.dice.random() < 0.15:
            on.append(self.predicate(self.dice.choice([left, right]).columns, 0, deep=self.dice.random() < 0.3))
        return self.combined(kind, left, right, on, max(left.rows, right.rows, min(rows, product)))

    @staticmethod
    def combined(kind, left, right, on, rows):
        # A row may come more than once, or be all NULL.
        columns = [dataclasses.replace(column, unique=False) for column in left.columns + right.columns]
        return Relation(Join(kind, left.tree, right.tree, on), columns, rows)

    def compared(self, left, right):
        """A condition of both sides that is no plain equality."""
        one = self.dice.choice(left.columns)
        same = [column for column in right.columns if column.kind == one.kind]
        if not same:
            return self.predicate(left.columns + right.columns, 0)
        other = self.dice.choice(same)
        if one.kind in ("int", "float", "dec") and self.dice.random() < 0.5:
            return f"abs({one.name} - {other.name}) <= {self.dice.choice([0, 1, 3])}"
        if self.dice.random() < 0.15:
            return f"{one.name} IS NOT DISTINCT FROM {other.name}"
        return f"{one.name} {self.dice.choice(['<', '<=', '>', '>=', '<>'])} {other.name}"

    # Subqueries within expressions; `outer` are columns that they may refer to.

    def scalar_subquery(self, kind, outer=()):
        relation = self.base()
        same = [column for column in relation.columns if column.kind == kind]
        query = Select(source=relation.tree)
        if outer and self.dice.random() < 0.7:
            pairs = [(a, b) for a in outer for b in relation.columns if a.kind == b.kind and b.distinct > 1]
            if pairs:
                one, other = self.dice.choice(pairs)
                query.where.append(f"{other.name} = {one.name}")
        if kind == "int" and self.dice.random() < 0.4 or not same:
            if kind != "int":
                return ["(", Select(items=[self.literal(kind)]), ")"]
            query.items = [self.dice.choice(["count(*)", f"count({self.dice.choice(relation.columns).name})"])]
        elif kind == "bool":
            query.items = [f"bool_or({self.dice.choice(same).name})"]
        else:
            column = self.dice.choice(same).name
            if query.where or self.dice.random() < 0.6:
                query.items = [f"{self.dice.choice(['min', 'max'])}({column})"]
            else:
                query.items = [column]
                if self.dice.random() < 0.9:
                    query.order, query.limit = [f"{column} {self.direction()}"], 1
                    query.offset = self.dice.choice([None, None, 3, 10 ** 6])
                else:
                    # One row, none, or several, which is an error.
                    query.risky = True
                    query.where.append(f"{relation.columns[0].name} = {self.dice.choice([0, 1, -1])}"
                                       if self.dice.random() < 0.8 else f"{relation.columns[0].name} < 2")
        if self.dice.random() < 0.3:
            query.where.append(self.predicate(relation.columns, 0))
        return ["(", query, ")"]

    def subquery_predicate(self, outer, rows):
        """A condition of `outer` columns on another table, for about so many rows."""
        relation = self.base()
        query = Select(items=["1"], source=relation.tree)
        negated = self.dice.choice(["", "NOT "])
        if self.dice.random() < 0.5:
            query.where.append(self.predicate(relation.columns, 0))
        # The engine looks at all pairs of equal keys.
        pairs = [(a, b) for a in outer for b in relation.columns if a.kind == b.kind
                 and rows * relation.rows // max(a.distinct, b.distinct) <= PAIRS_MAX]
        if not pairs:
            return [f"{negated}EXISTS (", query, ")"]
        one, other = self.dice.choice(pairs)
        if self.dice.random() < 0.5:
            query.items = [other.name]
            if self.dice.random() < 0.2:
                query.order, query.limit = [f"{other.name} {self.direction()}"], self.dice.choice([1, 5, 100])
            elif not negated and self.dice.random() < 0.25:
                more = self.dice.choice(pairs)
                query.where.append(f"{more[1].name} = {more[0].name}")
            return [f"{one.name} {negated}IN (", query, ")"]
        query.where.append(f"{other.name} = {one.name}")
        return [f"{negated}EXISTS (", query, ")"]

    # Queries: each is a tree, its columns, and about how many rows it has.

    def query(self, depth):
        draws = [(5, self.plain), (4, self.grouped), (3, self.windowed), (2, self.distinct_on), (1, self.recursive),
                 (2, self.counted)]
        if depth > 0:
            draws += [(3, self.operation), (2, self.with_common)]
        tree, columns, rows = self.weighted(draws)(depth)
        return tree, columns, max(1, rows)

    def top(self):
        """A whole query. Its columns have names of their own, as JSON needs."""
        return self.query(self.dice.choice([1, 1, 2, 2, 3]))[0]

    def filtered(self, depth):
        """A source with conditions on it."""
        relation = self.source(depth)
        self.constants.update(column.name for column in relation.columns if column.constant or relation.rows <= 1)
        query, rows = Select(source=relation.tree), relation.rows
        varied = [column for column in relation.columns if not column.constant]
        for _ in range(self.dice.choice([0, 0, 1, 1, 2]) if varied else 0):
            if self.dice.random() < 0.22:
                query.where.append(self.subquery_predicate(varied, rows))
            else:
                query.where.append(self.predicate(varied, 1, deep=True))
        return query, relation.columns, rows

    def limited(self, query, columns, rows, often=0.4):
        """Perhaps with an order by all columns, so that any LIMIT has one answer, up to rows that are equal."""
        if self.dice.random() < often:
            names = [column.name for column in columns]
            self.dice.shuffle(names)
            unique = next((column.name for column in columns if column.unique), None)
            if unique and self.dice.random() < 0.5:
                names = names[:names.index(unique) + 1]
            query.order = [f"{name} {self.direction()}" for name in names]
            query.total = True
            if self.dice.random() < 0.06:
                query.order.insert(0, [*self.scalar_subquery("int"), f" {self.direction()}"])
            if self.dice.random() < 0.75:
                query.limit = self.dice.choice([1, 1, 2, 3, 10, 100, 3000, 3000])
                query.limit = 0 if self.dice.random() < 0.02 else query.limit
            if self.dice.random() < 0.35:
                query.offset = self.dice.choice([1, 2, 7, rows // 4, rows // 2, rows])
            rows = min(rows, query.limit or rows)
        elif self.dice.random() < 0.08:
            # An order of some columns that another may follow, and a limit that cuts nothing and keeps it from being left out.
            names = self.dice.sample(columns, self.dice.randint(1, len(columns)))
            query.order = [f"{column.name} {self.direction()}" for column in names]
            query.limit = LIMIT_OF_ALL
        return rows

    def named(self, query, expressions):
        """Items with names, which are their columns."""
        columns = []
        for number, (text, kind, distinct, unique) in enumerate(expressions):
            query.items.append([text, f" AS c{number}"])
            columns.append(Column(f"c{number}", kind, distinct, unique, self.is_constant(text)))
        return columns

    def is_constant(self, part):
        """Whether an expression depends on no column that varies, as far as that can be seen."""
        if isinstance(part, (list, tuple)):
            return all(map(self.is_constant, part))
        return not isinstance(part, str) or not (set(re.findall(r"\ba\d+\.\w+|count\(|row_number\(", part)) - self.constants)

    def items(self, inner, count):
        """Expressions over columns, each with its kind."""
        found = []
        for _ in range(count):
            column = self.dice.choice(inner)
            if self.dice.random() < 0.6:
                found.append((column.name, column.kind, column.distinct, column.unique))
            elif self.dice.random() < 0.12:
                kind = self.dice.choice(["int", "float", "text", "date", "bool"])
                outer = inner if self.dice.random() < 0.4 else ()
                found.append((self.scalar_subquery(kind, outer), kind, 1, False))
            else:
                kind = self.dice.choice(["int", "int", "float", "text", "date", "time", "bool"])
                found.append((self.expression(kind, inner, 2, deep=True), kind, 20, False))
        return found

    def plain(self, depth):
        query, inner, rows = self.filtered(depth)
        unique = [column for column in inner if column.unique]
        items = self.items(inner, self.dice.randint(1, 4))
        if unique and self.dice.random() < 0.5:
            items.append((unique[0].name, unique[0].kind, unique[0].distinct, True))
        columns = self.named(query, items)
        if self.dice.random() < 0.15:
            query.distinct = "DISTINCT "
        return query, columns, self.limited(query, columns, rows)

    def distinct_on(self, depth):
        query, inner, rows = self.filtered(depth)
        # The engine takes an expression twice in its order for a mistake.
        items = {repr(item[0]): item for item in self.items(inner, self.dice.randint(2, 4))}
        columns = self.named(query, items.values())
        on = self.dice.sample(columns, min(len(columns), self.dice.choice([1, 1, 2])))
        # Written out, as DISTINCT ON knows no aliases.
        texts = {column.name: item[0] for column, item in zip(columns, query.items)}
        query.distinct = ["DISTINCT ON (", *self.listed(texts[column.name] for column in on), ") "]
        rest = [column for column in columns if column not in on]
        query.order = [[texts[column.name], f" {self.direction()}"] for column in on + rest]
        query.total = True
        if self.dice.random() < 0.3:
            query.limit = self.dice.choice([1, 3, 10])
        return query, columns, min(rows, self.product(on))

    def grouped(self, depth):
        query, inner, rows = self.filtered(depth)
        keys = self.items(inner, self.dice.choice([0, 1, 1, 2, 2, 3]))
        aggregates = [self.aggregate(inner, lists=self.within == 0) for _ in range(self.dice.randint(1, 3))]
        columns = self.named(query, [*((text, kind, distinct, False) for text, kind, distinct, _ in keys), *aggregates])
        texts = [text for text, *_ in keys]
        distinct = 1
        for _, _, one, _ in keys:
            distinct = min(rows, distinct * max(1, one))
        if texts:
            query.group = texts
            # The parser takes no subquery in them, the planner no key twice, and an expression may turn out constant.
            plain = len(set(map(repr, texts))) == len(texts) and all(
                isinstance(text, str) and re.fullmatch(r"a\d+\.(id|[a-z]\d?)", text) and
                not re.search(r"\.c\d", text) for text in texts)
            if self.dice.random() < 0.5 and plain:
                query.group = [self.grouping(texts)]
                if self.dice.random() < 0.5:
                    query.items.append(["CAST(grouping(", texts[0], f") AS BIGINT) AS c{len(columns)}"])
                    columns.append(Column(f"c{len(columns)}", "int", 2))
        elif self.dice.random() < 0.15:
            query.group = ["GROUPING SETS (())"]
        if self.dice.random() < 0.25:
            query.having = [self.having(inner)]
        if any(column.kind.startswith("[") for column in columns):
            return query, columns, distinct
        return query, columns, self.limited(query, columns, distinct)

    def grouping(self, texts):
        every, first, last = self.listed(texts), texts[0], texts[-1]
        return self.dice.choice([
            ["ROLLUP (", every, ")"], ["CUBE (", every, ")"], ["GROUPING SETS ((", every, "), ())"],
            ["GROUPING SETS ((", first, "), (", last, "))"],
            ["GROUPING SETS ((", first, "), (", every, "), ())"]])

    def having(self, inner):
        number = self.dice.choice([0, 1, 3, 100])
        if self.dice.random() < 0.3:
            return ["count(*) >= coalesce(", self.scalar_subquery("int"), f", {number})"]
        return self.dice.choice([f"count(*) > {number}", f"max({self.dice.choice(inner).name}) IS NOT NULL",
                                 f"count(DISTINCT {self.dice.choice(inner).name}) <= {number}"])

    def windowed(self, depth):
        query, inner, rows = self.filtered(depth)
        base = self.items(inner, self.dice.randint(1, 2))
        base += [(column.name, column.kind, column.distinct, True) for column in inner if column.unique][:1]
        # Rows that are equal in all columns may come in another order in each window.
        most = 2 if any(column.unique for column in inner) else 1
        windows = [self.window(inner) for _ in range(self.dice.randint(1, most))]
        columns = self.named(query, [*base, *((text, kind, 50, False) for text, kind in windows)])
        if self.dice.random() < 0.1:
            query.distinct = "DISTINCT "
        return query, columns, self.limited(query, columns, rows)

    def counted(self, depth):
        """How many rows LIMIT leaves without an order, or ranks without a total one give: that is determined."""
        query, inner, rows = self.filtered(depth)
        self.named(query, self.items(inner, self.dice.choice([1, 1, 2])))
        outer, name = Select(items=["count(*) AS c0"]), self.alias()
        if self.dice.random() < 0.5:
            query.limit = self.dice.choice([1, 2, 10, 100, 5000])
            query.offset = self.dice.choice([None, None, 1, 9, rows // 2])
            outer.total = True
        else:
            order = self.dice.choice(["", f"ORDER BY {self.dice.choice(inner).name} {self.direction()}"])
            number = len(query.items)
            query.items.append(f"CAST(row_number() OVER ({order}) AS BIGINT) AS c{number}")
            outer.items += [f"count(DISTINCT {name}.c{number}) AS c1", f"max({name}.c{number}) AS c2"]
        outer.source = ["(", query, f") AS {name}"]
        return outer, [Column(f"c{number}", "int", 1) for number in range(len(outer.items))], 1

    def operation(self, depth):
        """A set operation of queries that have the same kinds of columns."""
        sides, kinds = [], [self.dice.choice(["int", "int", "float", "text", "date", "bool"])
                            for _ in range(self.dice.randint(1, 3))]
        rows, constant = [], False
        for _ in range(self.dice.choice([2, 2, 3])):
            query, inner, estimate = self.filtered(depth - 1)
            items = []
            for kind in kinds:
                same = [column for column in inner if column.kind == kind]
                column = self.dice.choice(same) if same else None
                items.append((column.name, kind, column.distinct, False) if column
                             else (self.expression(kind, inner, 1), kind, 5, False))
            columns = self.named(query, items)
            constant |= any(column.constant for column in columns)
            estimate = self.limited(query, columns, estimate, often=0.25)
            sides.append(query)
            rows.append(estimate)
        tree = sides[0]
        for side in sides[1:]:
            tree = SetOperation(self.dice.choice(OPERATIONS), tree, side)
        columns = [dataclasses.replace(column, distinct=sum(rows), unique=False, constant=False) for column in columns]
        return tree, columns, sum(rows) if constant else self.limited(tree, columns, sum(rows))

    def with_common(self, depth):
        name = f"w{self.alias()}"
        tree, columns, rows = self.inner(depth - 1)
        self.ctes.append((name, columns, rows))
        query, columns, rows = self.query(depth)
        self.ctes.pop()
        query.ctes.insert(0, [f"{name} AS (", tree, ")"])
        return query, columns, rows

    def recursive(self, depth):
        """Counts, and walks along keys; both end."""
        name, ends = f"r{self.alias()}", self.dice.choice([0, 1, 5, 40])
        relation = self.base()
        identity = relation.columns[0].name
        stop = self.weighted([
            (3, lambda: f"n < {ends}"),
            (1, lambda: ["n < (", Select(items=[f"least(30, max({identity}))"], source=relation.tree), ")"])])()
        source, step = name, "n + 1"
        if self.dice.random() < 0.4:
            walked = self.base()
            source = Join("JOIN", name, walked.tree, [f"{walked.columns[0].name} = n + {self.dice.choice([1, 1, 3])}"])
            step = walked.columns[0].name
            stop = f"n < {ends}"
        start = self.dice.choice([
            Select(items=["CAST(0 AS BIGINT) AS n"]),
            Select(items=[f"{identity} AS n"], source=relation.tree, where=[f"{identity} < 3"]),
            Select(items=[f"min({identity}) AS n"], source=relation.tree)])
        cte = [f"{name}(n) AS (", SetOperation("UNION ALL", start, Select(items=[step], source=source, where=[stop])), ")"]
        rows = 3 * (ends + 31)
        self.ctes.append((name, [Column("n", "int", ends + 1)], rows))
        if self.dice.random() < 0.5:
            alias = self.alias()
            query = Select(source=f"{name} AS {alias}")
            inner = [Column(f"{alias}.n", "int", ends + 1)]
            columns = self.named(query, [(f"{alias}.n", "int", ends + 1, False), *self.items(inner, 1)])
            rows = self.limited(query, columns, rows)
        else:
            query, columns, rows = self.weighted([(1, self.plain), (1, self.grouped), (1, self.windowed)])(min(depth, 1))
        self.ctes.pop()
        query.ctes.insert(0, cte)
        query.recursive = True
        return query, columns, rows
