//! CREATE EXTERNAL TABLE without STORED AS, which DataFusion's parser does not take.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// What STORED AS says where the statement leaves the format open.
pub(super) const ANY_FORMAT: &str = "ANYFORMAT";

/// A word of the statements that are looked at.
const EXTERNAL: &str = "EXTERNAL";

/// The statement with `STORED AS` in it, if it is one that needs it.
pub(crate) fn with_format(sql: &str) -> Cow<'_, str> {
    let mut parts = sql.as_bytes().windows(EXTERNAL.len());
    if !parts.any(|part| part.eq_ignore_ascii_case(EXTERNAL.as_bytes())) {
        return Cow::Borrowed(sql);
    }
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location() else {
        // The parser will say what is wrong with it.
        return Cow::Borrowed(sql);
    };
    let words: Vec<(String, u64, u64)> = tokens
        .iter()
        .filter_map(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => Some((
                word.value.to_ascii_uppercase(),
                token.span.start.line,
                token.span.start.column,
            )),
            _ => None,
        })
        .collect();
    let word = |index: usize| words.get(index).map(|(word, _, _)| word.as_str());
    let mut next = 1;
    if word(0) != Some("CREATE") {
        return Cow::Borrowed(sql);
    }
    if word(next) == Some("OR") && word(next + 1) == Some("REPLACE") {
        next += 2;
    }
    if word(next) == Some("UNBOUNDED") {
        next += 1;
    }
    let is_external = word(next) == Some(EXTERNAL) && word(next + 1) == Some("TABLE");
    let has_format = words
        .windows(2)
        .any(|pair| pair[0].0 == "STORED" && pair[1].0 == "AS");
    if !is_external || has_format {
        return Cow::Borrowed(sql);
    }
    // A column may be named so, too: the clause comes last.
    let location = words.iter().rev().find(|(word, _, _)| word == "LOCATION");
    let Some(offset) = location.and_then(|(_, line, column)| offset(sql, *line, *column)) else {
        return Cow::Borrowed(sql);
    };
    let (before, after) = sql.split_at(offset);
    Cow::Owned(format!("{before}STORED AS {ANY_FORMAT} {after}"))
}

/// The byte at a line and column, which count from 1, columns in characters.
fn offset(sql: &str, line: u64, column: u64) -> Option<usize> {
    let mut at = (1, 1);
    for (offset, character) in sql.char_indices() {
        if at == (line, column) {
            return Some(offset);
        }
        at = match character {
            '\n' => (at.0 + 1, 1),
            _ => (at.0, at.1 + 1),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_put_in_where_none_is_said() {
        assert_eq!(
            with_format("create external table t location 'x.csv'"),
            "create external table t STORED AS ANYFORMAT location 'x.csv'"
        );
        assert_eq!(
            with_format(
                "CREATE EXTERNAL TABLE \"é\" (location TEXT)\n PARTITIONED BY (y)\n LOCATION 'd/' OPTIONS (sep ';')"
            ),
            "CREATE EXTERNAL TABLE \"é\" (location TEXT)\n PARTITIONED BY (y)\n STORED AS ANYFORMAT LOCATION 'd/' OPTIONS (sep ';')"
        );
        for sql in [
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'x'",
            "SELECT 1",
            "CREATE TABLE t AS SELECT 1",
            "CREATE EXTERNAL 'oops",
        ] {
            assert_eq!(with_format(sql), sql);
        }
    }
}
