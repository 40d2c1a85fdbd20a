//! Cuts a line into words, and hands them out as verbs, names and flags.

use std::collections::VecDeque;
use std::str::FromStr;
use tollgate_types::{DurationMs, LogTime};

/// The words of a line that were not taken yet.
pub(super) struct Words {
    left: VecDeque<String>,
    /// The `@TIME` at the line's end.
    pub(super) at: Option<LogTime>,
}

impl Words {
    /// Splits a line. Words are separated by spaces; double quotes keep spaces inside a word and are dropped.
    pub(super) fn of(line: &str) -> Result<Words, String> {
        let (mut left, mut word, mut quoted) = (VecDeque::new(), None::<String>, false);
        for c in line.chars() {
            match c {
                '"' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                ' ' if !quoted => left.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        left.extend(word);
        if quoted {
            return Err("a quote is not closed".into());
        }
        let at = left.back().and_then(|last| last.strip_prefix('@')).map(milliseconds).transpose()?;
        if at.is_some() {
            left.pop_back();
        }
        Ok(Words { left, at: at.map(LogTime::from_ms) })
    }

    /// Takes the next word.
    pub(super) fn next(&mut self, what: &str) -> Result<String, String> {
        self.left.pop_front().ok_or_else(|| format!("{what} is missing"))
    }

    /// Returns the next word without taking it.
    pub(super) fn peek(&self) -> Option<&str> {
        self.left.front().map(String::as_str)
    }

    /// Takes the next word if it is not a flag.
    pub(super) fn next_plain(&mut self) -> Option<String> {
        self.left.pop_front_if(|word| !word.contains('='))
    }

    /// Takes the next word if it is `name=...`, and returns the part after the sign.
    pub(super) fn next_flag(&mut self, name: &str) -> Option<String> {
        let is_flag = |word: &mut String| value_of(word, name).is_some();
        self.left.pop_front_if(is_flag).and_then(|word| value_of(&word, name).map(str::to_owned))
    }

    /// Takes `name=...` out of the line, at any place.
    pub(super) fn flag(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|word| value_of(word, name).is_some())?;
        self.left.remove(at).and_then(|word| value_of(&word, name).map(str::to_owned))
    }

    /// Like [`Words::flag`], with an error if the flag is missing.
    pub(super) fn required(&mut self, name: &str) -> Result<String, String> {
        self.flag(name).ok_or_else(|| format!("{name}= is missing"))
    }

    /// Takes a flag with a number.
    pub(super) fn number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.flag(name)
            .map(|text| text.parse().map_err(|_| format!("{name}={text} is no number")))
            .transpose()
    }

    /// Takes a flag with a duration.
    pub(super) fn duration(&mut self, name: &str) -> Result<Option<DurationMs>, String> {
        self.flag(name).map(|text| milliseconds(&text).map(DurationMs::from_ms)).transpose()
    }

    /// Takes this word out of the line; true if it was there.
    pub(super) fn has(&mut self, word: &str) -> bool {
        let at = self.left.iter().position(|other| other == word);
        at.is_some_and(|at| self.left.remove(at).is_some())
    }

    /// Refuses words that were not taken: a misspelt flag must not pass in silence.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.left.front() {
            Some(word) => Err(format!("{word} is not understood here")),
            None => Ok(()),
        }
    }
}

fn value_of<'a>(word: &'a str, name: &str) -> Option<&'a str> {
    word.strip_prefix(name)?.strip_prefix('=')
}

/// Parses `5s` or `1500ms`.
pub(super) fn milliseconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(""), 1_000),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text} is no time: write 5s or 1500ms"))?;
    Ok(number * unit)
}

/// Formats milliseconds for [`milliseconds`]: whole seconds as seconds.
pub(super) fn time(ms: u64) -> String {
    match ms {
        u64::MAX => "never".into(),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}
