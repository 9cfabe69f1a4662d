//! The secret that a cluster's members share. It must never reach a log or a command line.

use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::str::FromStr;

use rand::TryRngCore as _;
use subtle::ConstantTimeEq as _;

use crate::{EngineError, Result};

/// Bytes of a token.
const TOKEN_BYTES: usize = 32;

/// A cluster's secret: 32 random bytes, written as 64 hexadecimal digits.
#[derive(Clone)]
pub struct Token([u8; TOKEN_BYTES]);

impl Token {
    /// A token from the operating system's random generator.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        rand::rngs::OsRng
            .try_fill_bytes(&mut bytes)
            .map_err(|e| EngineError::io("draw a random token", e))?;
        Ok(Self(bytes))
    }

    /// Reads a token from a file, and warns when other users can read it too.
    pub fn from_file(path: &Path) -> Result<Self> {
        let action = || format!("read the token file {}", path.display());
        let file = std::fs::File::open(path).map_err(|e| EngineError::io(action(), e))?;
        let mode = file
            .metadata()
            .map_err(|e| EngineError::io(action(), e))?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            tracing::warn!(
                "the token file {} can be read by other users; run chmod 600 on it",
                path.display()
            );
        }
        let mut text = String::new();
        // A token is short: a huge file is a wrong file, and is not read whole.
        file.take(4096)
            .read_to_string(&mut text)
            .map_err(|e| EngineError::io(action(), e))?;
        text.trim().parse().map_err(|_| {
            EngineError::Usage(format!(
                "{} holds no token: it must be {} hexadecimal digits",
                path.display(),
                2 * TOKEN_BYTES
            ))
        })
    }

    /// Reads the token that a cluster hands to a worker that it starts: the first line of standard
    /// input. For `worker --lifeline`, before [`crate::run_worker`], which watches the rest.
    pub fn from_lifeline() -> Result<Self> {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .map_err(|e| EngineError::io("read the token from standard input", e))?;
        line.trim().parse()
    }

    /// The token as 64 hexadecimal digits, to hand to a worker that is being started.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the two are equal, in a time that does not depend on where they differ.
    pub fn matches(&self, other: &Token) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl FromStr for Token {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || EngineError::Usage(format!("a token is {} hexadecimal digits", 2 * TOKEN_BYTES));
        if text.len() != 2 * TOKEN_BYTES || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; TOKEN_BYTES];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return Err(wrong());
            }
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text_and_differs_from_another() {
        let token = Token::random().expect("the system has randomness");
        let again: Token = token.to_hex().parse().expect("own text");
        assert!(token.matches(&again));
        assert!(!token.matches(&Token::random().expect("the system has randomness")));
        assert_eq!(format!("{token:?}"), "Token(secret)");
    }

    #[test]
    fn garbage_is_no_token() {
        for text in ["", "00", &"g".repeat(64), &"é".repeat(32), &"+1".repeat(32)] {
            // "+1" is a number to from_str_radix, but no pair of digits.
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
