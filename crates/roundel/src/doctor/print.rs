//! The report as text for people: sections of short aligned lines, a mark at each.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use super::findings::{Finding, Level};
use super::report::Report;

/// Columns after which a line is broken.
const WIDTH: usize = 100;
/// Columns of a mark and what is before and after it.
const MARK_WIDTH: usize = 11;

/// The text, with colours or without.
pub fn text(report: &Report, colours: bool) -> String {
    let mut text = format!("{}.\n", report.summary);
    let mut rest = &report.findings[..];
    while let Some(first) = rest.first() {
        let same = |finding: &&Finding| finding.section == first.section;
        let count = rest.iter().take_while(same).count();
        let (section, after) = rest.split_at(count);
        let _ = write!(text, "\n{}\n", first.section);
        let about = section.iter().map(|finding| finding.about.len()).max();
        for finding in section {
            line(&mut text, finding, about.unwrap_or(0), colours);
        }
        rest = after;
    }
    text
}

fn line(text: &mut String, finding: &Finding, about_width: usize, colours: bool) {
    let (mark, colour) = match finding.level {
        Level::Ok => ("ok", AnsiColor::Green),
        Level::Note => ("note", AnsiColor::Yellow),
        Level::Problem => ("problem", AnsiColor::Red),
    };
    let style = match colours {
        true => Style::new().fg_color(Some(colour.into())),
        false => Style::new(),
    };
    let indent = MARK_WIDTH + about_width + 2;
    let _ = write!(
        text,
        "  {style}{mark:<7}{style:#}  {:<about_width$}  ",
        finding.about
    );
    wrapped(text, &finding.text, indent);
    for step in &finding.to_do {
        let _ = write!(text, "{:indent$}→ ", "");
        wrapped(text, step, indent + 2);
    }
}

/// Writes words, the lines after the first one indented. What is between backquotes is a command,
/// which stays on one line, so that it can be copied.
fn wrapped(text: &mut String, words: &str, indent: usize) {
    let mut column = indent;
    let mut first = true;
    for word in pieces(words) {
        let length = word.chars().count();
        if !first && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        } else if !first {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += length;
        first = false;
    }
    text.push('\n');
}

/// Words, and commands with the blanks in them.
fn pieces(words: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut inside = false;
    for word in words.split_whitespace() {
        match pieces.last_mut() {
            Some(piece) if inside => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        inside ^= word.matches('`').count() % 2 == 1;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, text: &str, to_do: &[&str]) -> Finding {
        Finding {
            section: "Host".to_owned(),
            about: "memory".to_owned(),
            level,
            text: text.to_owned(),
            to_do: to_do.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn lines_are_aligned_and_steps_follow() {
        let mut text = String::new();
        line(&mut text, &finding(Level::Ok, "1.0 GiB", &[]), 8, false);
        line(
            &mut text,
            &finding(Level::Note, "little", &["add some"]),
            8,
            false,
        );
        let wanted = "  ok       memory    1.0 GiB\n  \
                        note     memory    little\n                     → add some\n";
        assert_eq!(text, wanted);
        let mut coloured = String::new();
        line(
            &mut coloured,
            &finding(Level::Problem, "none", &[]),
            8,
            true,
        );
        assert!(
            coloured.contains("\u{1b}[31mproblem\u{1b}[0m"),
            "{coloured:?}"
        );
    }

    #[test]
    fn long_lines_are_broken_but_commands_are_not() {
        let command = format!("`{}`", "very long command ".repeat(6).trim());
        let mut text = String::new();
        wrapped(
            &mut text,
            &format!("{} {command}, then rest", "word ".repeat(30)),
            4,
        );
        assert!(text.lines().count() >= 3, "{text}");
        assert!(text.contains(&format!("{command},")), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("    ")));
    }
}
