//! Words as they are shown: without what would break a file, a figure or a terminal, and short enough for their place.

use std::iter;

use unicode_width::UnicodeWidthStr as _;

/// Stands for what was left out.
const ELLIPSIS: char = '…';

/// `text` in one line, without control characters: XML forbids most of them, terminals obey them,
/// and those for the direction of text disarrange what is beside them.
pub(super) fn clean(text: &str) -> String {
    let clean_char = |c: char| match c {
        c if c.is_whitespace() => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(clean_char).collect()
}

/// `text`, clean, in at most `columns` columns of a terminal. What is too much is left out of the second half, because
/// names differ at their ends, and more often at the first.
pub(super) fn fit_columns(text: &str, columns: usize) -> String {
    let text = clean(text);
    let fits = |text: &str| text.width() <= columns;
    if fits(&text) {
        return text;
    }
    let chars: Vec<char> = text.chars().collect();
    let keeping = |kept: usize| {
        let tail = kept / 3;
        let head = chars[..kept - tail].iter().copied();
        let tail = chars[chars.len() - tail..].iter().copied();
        head.chain(iter::once(ELLIPSIS))
            .chain(tail)
            .collect::<String>()
    };
    // What is kept grows with its length, so the longest that fits can be searched for.
    let (mut fitting, mut too_long) = (0, chars.len());
    while fitting + 1 < too_long {
        let middle = fitting.midpoint(too_long);
        if fits(&keeping(middle)) {
            fitting = middle;
        } else {
            too_long = middle;
        }
    }
    keeping(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            clean("a\0b\u{1b}[31m\nc\u{202e}d"),
            "a\u{fffd}b\u{fffd}[31m c\u{fffd}d"
        );
        assert_eq!(clean("µs – 中文 \u{ffff}"), "µs – 中文 \u{fffd}");
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = "MESQ/SR with a very long name, 16 queue pairs";
        let short = fit_columns(name, 20);
        assert!(
            short.starts_with("MESQ") && short.ends_with("pairs"),
            "{short}"
        );
        assert_eq!(short.width(), 20);
        assert_eq!(fit_columns(name, 100), name);
        assert_eq!(fit_columns(name, 0), "…");
    }

    #[test]
    fn columns_count_wide_characters_twice() {
        assert_eq!("中文".width(), 4);
        assert_eq!(fit_columns("中文中文中文", 7), "中文…文");
        assert_eq!(fit_columns("short", 7), "short");
    }
}
