//! The words of the command line, before clap parses them.
//!
//! A flag whose span may be left out (`--watch`, `member add --wait`) takes it after `=` only: else `ls --watch db/`
//! would take a prefix for a span. People write a space all the same, and `ls --watch 2s` would take the span for a
//! prefix. So a word that follows such a flag and can be a span is taken as its span: both spellings mean the same.

use std::ffi::{OsStr, OsString};

/// Flags whose span may be left out. Where the span is required, the two spellings mean the same anyway.
const SPAN_FLAGS: [&str; 3] = ["--watch", "-w", "--wait"];

/// Returns the arguments of this process, with spans joined to their flags.
pub(crate) fn arguments() -> Vec<OsString> {
    joined(std::env::args_os())
}

fn joined(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            // The rest is another program's.
            joined.push(word);
            joined.extend(words);
            return joined;
        }
        match joined.last_mut() {
            Some(flag) if SPAN_FLAGS.iter().any(|known| flag == known) && is_like_a_span(&word) => {
                flag.push("=");
                flag.push(&word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// True if the user meant a span, with or without its unit; a malformed span is reported later.
fn is_like_a_span(word: &OsStr) -> bool {
    let Some(word) = word.to_str() else { return false };
    let is_number = !word.is_empty() && word.chars().all(|letter| letter.is_ascii_digit());
    is_number || crate::span::parse(word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let words = joined(line.split(' ').map(OsString::from));
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn a_span_after_its_flag_is_joined_to_it() {
        check("tollgate ls --watch 2s", "tollgate ls --watch=2s");
        check("tollgate get --watch 1m30s db", "tollgate get --watch=1m30s db");
        check("tollgate status -w 500ms -o json", "tollgate status -w=500ms -o json");
        check("tollgate ls --watch 5", "tollgate ls --watch=5");
        check("tollgate member promote 4 --wait 5m", "tollgate member promote 4 --wait=5m");
    }

    #[test]
    fn what_is_no_span_and_what_is_another_programs_stays() {
        for line in [
            "tollgate ls --watch db/",
            "tollgate get db --watch",
            "tollgate ls --watch=2s 3s",
            "tollgate run --wait=1s jobs -- x --watch 2s",
            "tollgate ls 2s --watch",
        ] {
            check(line, line);
        }
    }
}
