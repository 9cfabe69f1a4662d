"""Random tables as CSV and Parquet files, and the same in DuckDB: drawn from a seed, always alike for the same one."""

import dataclasses
import pathlib

# Bytes that a table's files have in all, about. Small ones are cut into few parts, in ways of their own.
BYTES = [2 << 10, 10 << 10, 30 << 10, 60 << 10, 130 << 10, 300 << 10, 600 << 10, 1200 << 10, 2500 << 10, 5000 << 10]
WEIGHTS = [1, 1, 2, 2, 4, 5, 5, 3, 2, 1]
# DuckDB writes row groups of multiples of this.
ROW_GROUP = 2048
COLUMNS_MAX = 7


@dataclasses.dataclass(frozen=True)
class Column:
    """A column as queries know it."""
    name: str
    kind: str
    distinct: int
    # No two rows have the same, and none is NULL.
    unique: bool = False
    # All rows have the same.
    constant: bool = False


@dataclasses.dataclass
class Table:
    """A table, and how it was made."""
    name: str
    path: str
    rows: int
    columns: list
    recipe: str


# How a column is made of a number `n`, and its bytes in CSV.
KINDS = {
    "int": ("({n} - 7)::BIGINT", 5),
    "float": ("({n} / 4.0 + 0.25)::DOUBLE", 6),
    "text": ("chr((97 + {n} % 7)::INTEGER) || repeat('é', ({n} % 3)::INTEGER) || ({n} // 7)::VARCHAR", 6),
    "date": ("(DATE '2020-02-27' + ({n})::INTEGER)", 11),
    "time": ("(TIMESTAMP '2021-12-31 20:30:00' + INTERVAL 1 HOUR * ({n}))", 20),
    "bool": ("({n} % 2 = 0)", 5),
    "dec": ("({n} * 0.27)::DECIMAL(9,2)", 6),
}
# Text that has to be quoted in CSV, and what looks like something else.
AWKWARD = "['x,y', 'he said \"no\"', '  spaces ', 'NULL', 'true', '12', ''';--', 'é|ñ']"


def drawn(dice, number, rows, nulls_from):
    """One column: a number for each row, uniform or skewed, and what is made of it."""
    kind = dice.choice([*KINDS, "int", "int", "text"])
    distinct = max(1, min(dice.choice([2, 5, 7, 40, 300, 3000]), rows))
    skew = dice.choice([1, 1, 1, 3, 8])
    nulls = dice.choice([0, 0, 5, 40, 90])
    noise = f"(hash(i * 16 + {number}, {dice.randrange(1 << 30)}) % 1000003)"
    n = f"floor({distinct} * pow({noise} / 1000003.0, {skew}))::BIGINT"
    if kind == "text" and dice.random() < 0.3:
        value, distinct = f"{AWKWARD}[1 + {n} % 8]", min(distinct, 8)
    else:
        value = KINDS[kind][0].format(n=f"({n})")
    if nulls:
        # The first rows tell a reader of CSV what a column holds.
        value = f"CASE WHEN i >= {nulls_from} AND hash(i, {number + 77}) % 100 < {nulls} THEN NULL ELSE {value} END"
    return Column(f"{kind[0]}{number}", kind, distinct), value, KINDS[kind][1]


def make(dice, connection, directory, name):
    """One table: in DuckDB, and in files that Roundel reads."""
    csv = dice.random() < 0.5
    size = dice.choices(BYTES, WEIGHTS)[0]
    files = dice.choice([1, 1, 2, 3, 5])
    columns, values, width = [], [], 6
    for number in range(dice.randint(3, COLUMNS_MAX)):
        column, value, bytes_each = drawn(dice, number, max(1, size // 40), files)
        if csv and column.kind == "dec":
            continue
        columns.append(column)
        values.append(f"{value} AS {column.name}")
        width += bytes_each
    rows = max(files, size // width)
    columns = [dataclasses.replace(column, distinct=min(column.distinct, rows)) for column in columns]
    order = dice.choice(["id", "id", f"hash(id, {dice.randrange(1 << 30)})", *(f"{c.name}, id" for c in columns[:1])])
    # A key without gaps, and one that meets other tables' keys by chance.
    values = ["i AS id", f"(i * 7919 % {rows * 2 + 1})::BIGINT AS u", *values]
    columns = [Column("id", "int", rows, unique=True), Column("u", "int", rows), *columns]
    connection.execute(f"CREATE TABLE {name} AS SELECT {', '.join(values)} FROM range({rows}) t(i)")
    path = pathlib.Path(directory) / name
    ending, options = ("csv", "HEADER") if csv else ("parquet", f"ROW_GROUP_SIZE {ROW_GROUP * dice.choice([1, 1, 2, 50])}, "
                                                     f"COMPRESSION {dice.choice(['uncompressed', 'snappy', 'zstd'])}")
    if files == 1 and dice.random() < 0.7:
        path = path.with_suffix(f".{ending}")
        parts = [(path, "true")]
    else:
        path.mkdir()
        parts = [(path / f"{part}.{ending}", f"id % {files} = {part}") for part in range(files)]
    for file, where in parts:
        connection.execute(f"COPY (SELECT * FROM {name} WHERE {where} ORDER BY {order}) TO '{file}' "
                           f"(FORMAT {ending}, {options})")
    bytes_all = sum(file.stat().st_size for file, _ in parts)
    recipe = (f"{name}: {rows} rows, {bytes_all >> 10} KiB, {len(parts)} {ending} ({options}), ordered by {order}\n"
              f"    SELECT {', '.join(values)} FROM range({rows}) t(i)")
    return Table(name, str(path), rows, columns, recipe)
