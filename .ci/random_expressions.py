"""Random expressions, aggregates and windows over columns, which all engines give one value, exactly."""

# Directions of an order; both engines are told where NULLs are.
DIRECTIONS = ["ASC NULLS LAST", "ASC NULLS FIRST", "DESC NULLS LAST", "DESC NULLS FIRST"]
NUMBERS = ("int", "float", "dec")


class Expressions:
    """Draws expressions of a kind; `deep` ones may hold subqueries, which whoever has tables adds."""

    def __init__(self, dice):
        self.dice = dice
        self.aliases = 0

    def alias(self):
        self.aliases += 1
        return f"a{self.aliases}"

    def weighted(self, draws):
        return self.dice.choices([draw for _, draw in draws], [weight for weight, _ in draws])[0]

    def direction(self):
        return self.dice.choice(DIRECTIONS)

    @staticmethod
    def listed(parts):
        """Parts with commas between them."""
        found = []
        for part in parts:
            found += [", ", part] if found else [part]
        return found

    @staticmethod
    def product(columns):
        rows = 1
        for column in columns:
            rows *= max(1, column.distinct)
        return rows

    def literal(self, kind):
        number = self.dice.choice([0, 1, 2, 3, 7, 50, 1000])
        return {
            "int": f"CAST({number} AS BIGINT)",
            "float": f"CAST({number}.25 AS DOUBLE)",
            "dec": f"CAST({number}.25 AS DECIMAL(9, 2))",
            "text": self.dice.choice(["'a'", "'b1'", "'cé2'", "'x,y'", "'zz'", "''"]),
            "date": f"DATE '2020-03-{1 + number % 28:02}'",
            "time": f"TIMESTAMP '2022-01-{1 + number % 28:02} 06:30:00'",
            "bool": self.dice.choice(["true", "false"]),
        }[kind]

    def near(self, column):
        """A value that a column may well have."""
        if column.kind not in ("int", "float", "dec"):
            return self.literal(column.kind)
        number = self.dice.randrange(max(2, column.distinct)) >> self.dice.choice([0, 0, 1, 3])
        return {"int": f"{number}", "float": f"{number // 4}.25", "dec": f"{number * 27 / 100:.2f}"}[column.kind]

    def expression(self, kind, columns, depth, deep=False):
        """A part of this kind."""
        same = [column.name for column in columns if column.kind == kind]
        if deep and self.dice.random() < 0.04:
            return self.scalar_subquery(kind)
        if depth <= 0 or self.dice.random() < 0.25:
            return self.dice.choice(same) if same and self.dice.random() < 0.85 else self.literal(kind)

        def of(which):
            return self.expression(which, columns, depth - 1, deep)

        def case():
            return ["CASE WHEN ", of("bool"), " THEN ", of(kind), *self.dice.choice([[" ELSE ", of(kind)], []]), " END"]

        def coalesced():
            return ["coalesce(", of(kind), ", ", of(kind), ")"]

        def nothing():
            return ["nullif(", of(kind), ", ", of(kind), ")"]

        own = [case, coalesced, nothing, *getattr(self, f"{kind}_forms", lambda of: [])(of)]
        return self.dice.choice(own)()

    def int_forms(self, of):
        number = self.dice.choice([2, 3, 7, 100])
        return [
            lambda: ["(", of("int"), self.dice.choice([" + ", " - "]), of("int"), ")"],
            lambda: ["(", of("int"), f" % {number})"],
            lambda: ["abs(", of("int"), ")"],
            lambda: ["length(", of("text"), ")"],
            lambda: ["CAST(extract(", self.dice.choice(["year", "month", "day"]), " FROM ", of("date"), ") AS BIGINT)"],
        ]

    def float_forms(self, of):
        return [
            lambda: ["(", of("float"), self.dice.choice([" + ", " - "]), of("float"), ")"],
            lambda: ["CAST(", of("int"), " AS DOUBLE)"],
            lambda: ["abs(", of("float"), ")"],
        ]

    def text_forms(self, of):
        return [
            lambda: ["upper(", of("text"), ")"],
            lambda: ["substr(", of("text"), f", {self.dice.randint(1, 2)}, {self.dice.randint(1, 3)})"],
            lambda: ["(", of("text"), " || ", of("text"), ")"],
            lambda: ["CAST(", of("int"), " AS VARCHAR)"],
            lambda: ["replace(", of("text"), ", 'a', '<')"],
        ]

    def date_forms(self, of):
        return [lambda: ["CAST(", of("time"), " AS DATE)"]]

    def time_forms(self, of):
        return [lambda: [f"date_trunc('{self.dice.choice(['day', 'month', 'hour'])}', ", of("time"), ")"]]

    def bool_forms(self, of):
        kind = self.dice.choice(["int", "int", "float", "text", "date", "time"])
        return [
            lambda: ["(", of(kind), f" {self.dice.choice(['=', '<>', '<', '<=', '>', '>='])} ", of(kind), ")"],
            lambda: ["(", of("bool"), self.dice.choice([" AND ", " OR "]), of("bool"), ")"],
            lambda: ["(NOT ", of("bool"), ")"],
            lambda: ["(", of(kind), self.dice.choice([" IS NULL)", " IS NOT NULL)"])],
            lambda: ["(", of("text"), f" LIKE '{self.dice.choice(['a%', '%1', '%é%', '_2%', 'a_1'])}')"],
        ]

    def predicate(self, columns, depth, deep=False):
        """A condition; most are of one column, so that some rows are left."""
        column = self.dice.choice(columns)
        name, kind = column.name, column.kind
        draws = [
            (4, lambda: f"{name} {self.dice.choice(['=', '<>', '<', '<=', '>', '>='])} {self.near(column)}"),
            (1, lambda: f"{name} IS {self.dice.choice(['', 'NOT ', 'NOT '])}NULL"),
            (1, lambda: f"{name} IS DISTINCT FROM {self.literal(kind)}"),
            (1, lambda: f"{name} NOT IN ({self.near(column)}, {self.dice.choice([*[self.near(column)] * 9, 'NULL'])})"),
            (1, lambda: f"{name} IN ({self.near(column)}, {self.near(column)}, "
                        f"{self.dice.choice([self.near(column), self.near(column), 'NULL'])})"),
            (1, lambda: f"{name} BETWEEN {self.literal(kind)} AND {self.near(column)}"),
            (2 * depth, lambda: self.expression("bool", columns, 2)),
        ]
        if kind == "int":
            draws.append((2, lambda: f"{name} % {self.dice.choice([2, 3, 7])} = {self.dice.choice([0, 1])}"))
        if kind == "dec":
            rounded = f"{self.dice.randrange(max(2, column.distinct)) * 27 / 100:.1f}"
            draws.append((1, lambda: f"CAST({name} AS DECIMAL(9, 1)) {self.dice.choice(['=', '<=', '>'])} {rounded}"))
        if kind == "time":
            day = f"DATE '2022-01-0{self.dice.randint(1, 4)}'"
            draws.append((1, lambda: f"CAST({name} AS DATE) {self.dice.choice(['=', '=', '>'])} {day}"))
        if deep:
            draws.append((1, lambda: [f"{name} {self.dice.choice(['=', '<=', '>'])} ", self.scalar_subquery(kind)]))
        return self.weighted(draws)()

    def scalar_subquery(self, kind, outer=()):
        """One value of this kind from a table."""
        raise NotImplementedError

    def total_order(self, columns):
        """An order that leaves only equal rows in any order."""
        names = [column.name for column in columns]
        self.dice.shuffle(names)
        unique = [column.name for column in columns if column.unique]
        if unique:
            names = names[:self.dice.choice([0, 0, 1])] + [unique[0]]
        return ", ".join(f"{name} {self.direction()}" for name in dict.fromkeys(names))

    def aggregate(self, columns, lists):
        """An aggregate: its text, its kind, and what else a column has. Whether it may be a list is asked."""
        column = self.dice.choice(columns)
        name, kind = column.name, column.kind
        if self.dice.random() < 0.12 and kind in NUMBERS:
            name = ["coalesce(", name, ", ", self.scalar_subquery(kind), ")"]
        numbers = kind in NUMBERS
        order = self.total_order(columns)
        draws = [
            (3, lambda: ("count(*)", "int")),
            (1, lambda: (["count(", name, ")"], "int")),
            (1, lambda: (["count(DISTINCT ", name, ")"], "int")),
        ]
        if kind != "bool":
            draws.append((3, lambda: ([self.dice.choice(["min(", "max("]), name, ")"], kind)))
        else:
            draws.append((3, lambda: ([self.dice.choice(["bool_and(", "bool_or("]), name, ")"], kind)))
        if numbers:
            draws.append((4, lambda: (["sum(", name, ")"], kind)))
        if kind in ("int", "float"):
            draws.append((1, lambda: (["avg(", name, ")"], "float")))
        if kind == "int":
            draws.append((1, lambda: (["sum(DISTINCT ", name, ")"], kind)))
        if kind == "text":
            draws.append((1, lambda: (["string_agg(", name, f", '|' ORDER BY {order})"], kind)))
        if lists:
            draws.append((1, lambda: (["array_agg(", name, f" ORDER BY {order})"], f"[{kind}]")))
        draws.append((1, lambda: ([self.dice.choice(["FIRST(", "LAST("]), name, f" ORDER BY {order})"], kind)))
        text, kind = self.weighted(draws)()
        if self.dice.random() < 0.15:
            text = [text, " FILTER (WHERE ", self.predicate(columns, 0), ")"]
        return text, kind, 20, False

    def window(self, columns):
        """A window function with its window, and its kind."""
        column = self.dice.choice(columns)
        name, kind = column.name, column.kind
        # A subquery is put in the place of this in the end.
        subquery = self.scalar_subquery(kind) if self.dice.random() < 0.04 else None
        if subquery:
            name = f"coalesce({name}, \0)"
        by = self.dice.sample(columns, self.dice.choice([0, 0, 1, 1, min(2, len(columns))]))
        partition = f"PARTITION BY {', '.join(column.name for column in by)} " if by else ""
        total = f"ORDER BY {self.total_order(columns)}"
        # Equal rows of a partial order are peers.
        one = self.dice.choice(columns)
        some = f"ORDER BY {one.name} {self.direction()}"
        near = " RANGE BETWEEN 3 PRECEDING AND 1 FOLLOWING" if one.kind == "int" else ""
        frame = self.dice.choice(["", "", *(f" {unit} BETWEEN {between}" for unit, between in (
            ("ROWS", "UNBOUNDED PRECEDING AND CURRENT ROW"), ("ROWS", "3 PRECEDING AND 1 FOLLOWING"),
            ("ROWS", "CURRENT ROW AND UNBOUNDED FOLLOWING"), ("ROWS", "5 PRECEDING AND 2 PRECEDING"),
            ("ROWS", "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"), ("GROUPS", "1 PRECEDING AND 1 FOLLOWING"),
            ("RANGE", "UNBOUNDED PRECEDING AND CURRENT ROW"), ("RANGE", "CURRENT ROW AND UNBOUNDED FOLLOWING")))])

        def over(function, order, kind):
            return f"{function} OVER ({partition}{order})", kind

        ignored = self.dice.choice(["", "", "", " IGNORE NULLS"])
        filtered = f" FILTER (WHERE {self.predicate(columns, 0)})" if self.dice.random() < 0.15 else ""
        aggregate, made = self.dice.choice([
            ("count(*)", "int"), (f"count({name})", "int"),
            *([(f"sum({name})", kind)] if kind in NUMBERS else []),
            *([(f"min({name})", kind), (f"max({name})", kind)] if kind != "bool" else [])])
        ranked = self.dice.choice(["rank()", "dense_rank()"])
        text, kind = self.weighted([
            (3, lambda: (f"CAST(row_number() OVER ({partition}{total}) AS BIGINT)", "int")),
            (2, lambda: (f"CAST({ranked} OVER ({partition}{some}) AS BIGINT)", "int")),
            (1, lambda: (f"CAST(ntile({self.dice.choice([2, 5])}) OVER ({partition}{total}) AS BIGINT)", "int")),
            (1, lambda: over(self.dice.choice(["percent_rank()", "cume_dist()"]), some, "float")),
            (2, lambda: over(f"{self.dice.choice(['lag', 'lead'])}({name}, {self.dice.choice([1, 2])})", total, kind)),
            # Of `lead`, DataFusion does not ignore all NULLs before the second value.
            (1, lambda: over(f"{self.dice.choice(['lag', 'lead'])}({name}, 1{ignored})", total, kind)),
            (1, lambda: over(f"lag({name}, 2{ignored})", total, kind)),
            (1, lambda: over(f"{self.dice.choice(['first_value', 'last_value'])}({name}{ignored})",
                             total + frame, kind)),
            (1, lambda: over(f"nth_value({name}, 2{ignored})", total + frame, kind)),
            (4, lambda: over(aggregate + filtered, total + frame, made)),
            (2, lambda: over(aggregate + filtered, some + frame.replace("ROWS", "GROUPS"), made)),
            (1, lambda: over(aggregate + filtered, some + near, made)),
            (2, lambda: over(aggregate + filtered, "", made)),
        ])()
        before, *after = text.split("\0")
        return [before, *(part for rest in after for part in (subquery, rest))], kind
