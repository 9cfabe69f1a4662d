"""What checks against other engines share: answers read from Roundel's JSON, and compared with their types.

An answer is a list of rows, and a kind for each column. It knows nothing of how queries and tables are made.
"""

import collections
import datetime
import decimal
import json
import math
import subprocess

# How much two floats may differ: one step of the last of twelve digits, as both are rounded.
CLOSE = 1.001e-11
# Most rows that are compared with each other for that.
CLOSE_ROWS_MAX = 200


class Answer:
    """Rows of plain values: those of one column are all of its kind, or None."""

    def __init__(self, rows, kinds):
        self.rows, self.kinds = rows, kinds

    def of_columns(self, kinds):
        """The same rows from JSON, in which a value has only the form that its kind has there."""
        return [tuple(from_json(value, kind) for value, kind in zip(row, kinds)) if len(row) == len(kinds)
                else ("columns", len(row)) for row in self.rows]


def kind_of(name):
    """What DuckDB calls a type, as the few kinds that look different in JSON."""
    name = str(name)
    if name.endswith("[]"):
        return [kind_of(name[:-2])]
    if name.startswith("DECIMAL"):
        return "decimal"
    if name.startswith("TIMESTAMP"):
        return "timestamp"
    if name.endswith("INT") or name.endswith("INTEGER"):
        return "integer"
    return {"DOUBLE": "float", "FLOAT": "float", "VARCHAR": "text", "DATE": "date", "BOOLEAN": "boolean"}[name]


def answer_of(connection, sql, limit=None):
    """DuckDB's answer; of an answer of more rows than `limit` only one row more than that."""
    asked = connection.execute(sql)
    kinds = [kind_of(column[1]) for column in asked.description]
    rows = asked.fetchall() if limit is None else asked.fetchmany(limit + 1)
    return Answer([tuple(plain(value, kind) for value, kind in zip(row, kinds)) for row in rows], kinds)


def plain(value, kind):
    """One form of a value for all engines."""
    if value is None:
        return None
    if isinstance(kind, list):
        return tuple(plain(element, kind[0]) for element in value)
    if kind == "timestamp":
        return datetime.datetime.fromisoformat(str(value)).isoformat()
    if kind == "date":
        return value.isoformat() if isinstance(value, datetime.date) else str(value)
    if kind == "decimal":
        return decimal.Decimal(str(value))
    if kind == "float":
        # The last digits of a sum depend on the order of its rows.
        return float(f"{value:.12g}")
    return value


def from_json(value, kind):
    """A value from JSON, if it has the form of its kind; else something that equals no value."""
    if value is None:
        return None
    other = ("not", kind, repr(value))
    if isinstance(kind, list):
        return plain([from_json(element, kind[0]) for element in value], kind) if isinstance(value, list) else other
    if kind == "decimal":
        return decimal.Decimal(str(value)) if isinstance(value, (int, str, decimal.Decimal)) else other
    if kind == "float":
        return plain(float(value), kind) if isinstance(value, decimal.Decimal) else other
    if kind == "timestamp" and isinstance(value, str):
        return plain(value, kind)
    form = {"integer": int, "boolean": bool}.get(kind, str)
    return value if type(value) is form else other


def is_close(one, two):
    """Whether two values, or rows, are the same but for the last digits of floats."""
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(is_close, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=CLOSE)
    return one == two


def unmatched(mine, other):
    """The rows that only one of two answers has. Digits that are rounded may differ although the values hardly do."""
    had, has = collections.Counter(mine), collections.Counter(other)
    extra, lacking = had - has, has - had
    if extra.total() == lacking.total() <= CLOSE_ROWS_MAX:
        for one in list(extra):
            for two in list(lacking):
                if is_close(one, two):
                    both = min(extra[one], lacking[two])
                    extra[one] -= both
                    lacking[two] -= both
    return +extra, +lacking


def difference(ours, theirs, ordered=False):
    """How rows from JSON differ from an answer with kinds: as multisets, and in order if that is fixed. Or None."""
    mine, other = ours.of_columns(theirs.kinds), theirs.rows
    extra, lacking = unmatched(mine, other)
    told = []
    for whose, rows in (("too many", extra), ("missing", lacking)):
        for row in rows:
            told.append(f"{rows.total()} rows {whose}, such as {rows[row]} of {row}")
            break
    if told:
        return f"{len(mine)} rows for {len(other)}: {'; '.join(told)}"
    if ordered and mine != other:
        for at, (one, two) in enumerate(zip(mine, other)):
            if not is_close(one, two):
                return f"the same rows in another order: row {at} is {one} and not {two}"
    return None


def arrays(text):
    """All results in an output, also if it ends amid one, and also if they are elements of one array."""
    decoder = json.JSONDecoder(parse_float=decimal.Decimal)
    at, found = 0, []
    while at < len(text):
        if text[at].isspace() or text[at] == ",":
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        found += value if value and all(isinstance(element, list) for element in value) else [value]
    return found


def answers(text):
    """The same as answers."""
    return [Answer([list(row.values()) for row in rows], None) for rows in arrays(text)]


def asked(program, workers, table, texts):
    """What a session of so many workers of one thread answers to statements about a table `t`, in one process."""
    command = [program, "sql", "--fabric", "shm", "--workers", str(workers), "--threads", "1", "--format", "json",
               "--table", f"t={table}"]
    for text in texts:
        command += ["-c", text]
    return answers(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def self_check():
    """A comparison that cannot fail would prove nothing."""
    kinds = ["integer", "decimal", "text", "date", "float", ["integer"], "boolean", "timestamp"]
    theirs = Answer([
        (1, decimal.Decimal("1.5"), "a", "2020-01-02", 0.5, (1, None), True, "2020-01-02T03:00:00"),
        (2, None, "b", None, None, None, None, None),
    ], kinds)
    first = """{"a": 1, "b": 1.50, "c": "a", "d": "2020-01-02", "e": 0.5, "f": [1, null], "g": true,
        "h": "2020-01-02T03:00:00"}"""
    second = """{"a": 2, "b": null, "c": "b", "d": null, "e": null, "f": null, "g": null, "h": null}"""

    def told(*rows, ordered=False):
        (ours,) = answers(f"[{', '.join(rows)}]\n")
        return difference(ours, theirs, ordered)

    assert told(first, second, ordered=True) is None
    assert told(second, first) is None
    assert told(second, first, ordered=True) is not None
    for wrong in ([], [first], [first, first], [first, second, second]):
        assert told(*wrong) is not None, wrong
    for old, new in (('"a": 1', '"a": 1.0'), ("1.50", "1.25"), ('"c": "a"', '"c": null'), ("0.5", "1"),
                     ("[1, null]", "[1]"), ("true", "1"), ("03:00", "04:00"), ('"a": 1,', "")):
        assert told(first.replace(old, new), second) is not None, new
    rounded = Answer([(1, 8.11799410029), (1, 0.25)], ["integer", "float"])
    for value, is_same in (("8.1179941003", True), ("8.117994101", False), ("8", False)):
        (ours,) = answers('[{"a": 1, "b": ' + value + '}, {"a": 1, "b": 0.25}]')
        assert (difference(ours, rounded, ordered=True) is None) == is_same, value
    assert len(answers('[]\n[{"a": 1}]\n[{"a": ')) == 2
    assert len(answers('[[{"a": 1}], [{"a": 2}]]')) == 2
