//! Splitting of a text into SQL statements, as written. It does not parse them.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// The statements in `text`, without their semicolons; comments alone are no statement.
///
/// # Errors
///
/// What the tokenizer does not understand, such as a string without an end.
pub fn split(text: &str) -> Result<Vec<String>, String> {
    let tokens = tokens(text)?;
    let mut statements = Vec::new();
    let (mut start, mut said_something) = (0, false);
    let mut offsets = Offsets::new(text);
    for token in &tokens {
        match token.token {
            Token::SemiColon => {
                let end = offsets.of(token.span.start);
                if said_something {
                    statements.push(text[start..end].trim().to_owned());
                }
                (start, said_something) = (end + 1, false);
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => said_something = true,
        }
    }
    if said_something {
        statements.push(text[start..].trim().to_owned());
    }
    Ok(statements)
}

/// Whether a shell should run `text` now, or wait for more lines.
pub fn is_complete(text: &str) -> bool {
    let Ok(tokens) = tokens(text) else {
        return false;
    };
    let last = tokens
        .iter()
        .rfind(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
    last.is_none_or(|t| t.token == Token::SemiColon)
}

fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, String> {
    let mut tokenizer = Tokenizer::new(&GenericDialect {}, text);
    tokenizer
        .tokenize_with_location()
        .map_err(|e| e.to_string())
}

/// Byte offsets of the tokenizer's lines and columns, which count characters from 1; asked for in
/// ascending order.
struct Offsets<'a> {
    characters: std::str::CharIndices<'a>,
    at: Location,
}

impl<'a> Offsets<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            characters: text.char_indices(),
            at: Location { line: 1, column: 1 },
        }
    }

    fn of(&mut self, location: Location) -> usize {
        while (self.at.line, self.at.column) < (location.line, location.column) {
            match self.characters.next() {
                Some((_, '\n')) => {
                    self.at = Location {
                        line: self.at.line + 1,
                        column: 1,
                    }
                }
                Some(_) => self.at.column += 1,
                None => break,
            }
        }
        self.characters.offset()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_end_statements_but_not_within_strings_and_comments() {
        let text =
            "SELECT ';' AS \"é;\" -- ; no\n, 1;\n\n/* ; */ ; SELECT 'é\n;';\nSELECT 3 -- end";
        let statements = split(text).unwrap();
        assert_eq!(
            statements,
            [
                "SELECT ';' AS \"é;\" -- ; no\n, 1",
                "SELECT 'é\n;'",
                "SELECT 3 -- end"
            ]
        );
        assert!(split("SELECT 'open").is_err());
        assert!(split(" ;; -- nothing\n").unwrap().is_empty());
    }

    #[test]
    fn a_shell_waits_for_the_semicolon() {
        for complete in ["", "  ", "SELECT 1;", "SELECT 1; -- done", "-- a comment"] {
            assert!(is_complete(complete), "{complete}");
        }
        for incomplete in ["SELECT 1", "SELECT ';", "SELECT 1; SELECT", "/* ;"] {
            assert!(!is_complete(incomplete), "{incomplete}");
        }
    }
}
