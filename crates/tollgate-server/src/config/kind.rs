//! The kinds of values, and how to read each from text and from TOML.
//!
//! Invariant: a value that was read is well formed and within its range; nobody checks that again. Not here: lists of
//! members (`member`), rules between several keys (`rules`).

use super::member::{Endpoint, Member};
use super::problem::Wrong;
use super::spelling::nearest;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use tollgate_types::Zone;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

/// Kind of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`; outside the file also `1` or `0`.
    Bool,
    /// A whole number.
    Number {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Milliseconds as a whole number, or a text with a unit: `"500ms"`, `"2s"`, `"5m"`, `"1h"`.
    Millis {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Bytes as a whole number, or a text with a unit: `"64KiB"`, `"1MiB"`, `"2GiB"`.
    Bytes {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Any text without control characters.
    Text,
    /// A short label without control characters: the zone of a node.
    Zone,
    /// Any text without control characters that is not empty.
    Name,
    /// The path of a file or directory.
    Path,
    /// An IP address and a port, to listen on.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// 16 hexadecimal digits.
    ClusterId,
    /// Log levels, by target.
    Filter,
    /// A list of the cluster's members, in TOML syntax both in the file and outside.
    Members,
    /// A list of hosts with ports, to dial. Outside the file the hosts are separated by commas.
    Endpoints,
}

/// A value that was read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Value of a [`Kind::Bool`].
    Bool(bool),
    /// Value of a [`Kind::Number`], [`Kind::Millis`] or [`Kind::Bytes`].
    Number(u64),
    /// Value of any kind that is a text.
    Text(String),
    /// Value of a [`Kind::Members`].
    Members(Vec<Member>),
    /// Value of a [`Kind::Endpoints`].
    Endpoints(Vec<Endpoint>),
}

/// Maximum number of endpoints that are read; the rest of a longer list is ignored, because a few are enough.
const ENDPOINTS_MAX: usize = 64;

const MILLIS_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
const BYTES_UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool => write!(f, "true or false"),
            Kind::Number { min, max } => write!(f, "a whole number from {min} to {max}"),
            Kind::Millis { min, max } => write!(f, "milliseconds from {min} to {max}"),
            Kind::Bytes { min, max } => write!(f, "bytes from {min} to {max}"),
            Kind::Text | Kind::Zone | Kind::Name => write!(f, "a text"),
            Kind::Path => write!(f, "a path"),
            Kind::Address => write!(f, "an IP address and a port"),
            Kind::Choice(words) => write!(f, "{}", words.join(" or ")),
            Kind::ClusterId => write!(f, "16 hexadecimal digits"),
            Kind::Filter => write!(f, "a log level or filter"),
            Kind::Members => write!(f, "a list of members"),
            Kind::Endpoints => write!(f, "a list of hosts with ports"),
        }
    }
}

impl Kind {
    /// Reads the text of a variable or a flag. Not for members.
    pub(crate) fn parse_text(self, text: &str) -> Result<Value, Wrong> {
        match self {
            Kind::Bool => match text {
                "true" | "1" => Ok(Value::Bool(true)),
                "false" | "0" => Ok(Value::Bool(false)),
                _ => Err(Wrong::new(format!("is {text:?}, neither true nor false"), "write true or false")),
            },
            Kind::Number { .. } | Kind::Millis { .. } | Kind::Bytes { .. } => self.parse_number(text),
            Kind::Members => unreachable!("members are read as TOML wherever they come from"),
            Kind::Endpoints => {
                // The syntax of the file is accepted, too. No address ends with a bracket.
                let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
                let parts = inside.split(',').map(|part| part.trim().trim_matches('"'));
                read_endpoints(parts.filter(|part| !part.is_empty()))
            }
            _ => self.check_text(text).map(|()| Value::Text(text.to_owned())),
        }
    }

    /// Reads a value of the file. Not for members.
    pub(crate) fn read_toml(self, value: &DeValue<'_>) -> Result<Value, Wrong> {
        match (self, value) {
            (Kind::Bool, DeValue::Boolean(value)) => Ok(Value::Bool(*value)),
            (Kind::Number { .. } | Kind::Millis { .. } | Kind::Bytes { .. }, DeValue::Integer(value)) => {
                self.check_number(integer(value), value.as_str())
            }
            (Kind::Millis { .. } | Kind::Bytes { .. }, DeValue::String(text)) => self.parse_number(text),
            (Kind::Endpoints, DeValue::Array(items)) => {
                let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    other => Err(self.wrong_type(other)),
                };
                let texts = items.iter().map(text).collect::<Result<Vec<String>, Wrong>>()?;
                read_endpoints(texts.iter().map(String::as_str))
            }
            (
                Kind::Bool
                | Kind::Number { .. }
                | Kind::Millis { .. }
                | Kind::Bytes { .. }
                | Kind::Members
                | Kind::Endpoints,
                _,
            ) => Err(self.wrong_type(value)),
            (_, DeValue::String(text)) => self.check_text(text).map(|()| Value::Text(text.to_string())),
            _ => Err(self.wrong_type(value)),
        }
    }

    pub(crate) fn wrong_type(self, found: &DeValue<'_>) -> Wrong {
        let advice = match (self, found) {
            (Kind::Bool | Kind::Number { .. }, DeValue::String(_)) => "write it without quotes",
            (
                Kind::Text | Kind::Zone | Kind::Name | Kind::Path | Kind::Address | Kind::ClusterId,
                DeValue::Integer(_) | DeValue::Float(_),
            ) => "write it in quotes",
            (Kind::Members, _) => super::member::FORM,
            (Kind::Endpoints, _) => "write a list of texts, such as [\"10.0.0.1:7400\", \"10.0.0.2:7400\"]",
            _ => "",
        };
        Wrong::new(format!("must be {self}, and is {}", with_article(found.type_str())), advice)
    }

    /// Returns the units that a number may have, and the range of the result.
    fn units_and_range(self) -> (&'static [(&'static str, u64)], u64, u64) {
        match self {
            Kind::Millis { min, max } => (&MILLIS_UNITS, min, max),
            Kind::Bytes { min, max } => (&BYTES_UNITS, min, max),
            Kind::Number { min, max } => (&[], min, max),
            _ => unreachable!("not a number"),
        }
    }

    fn parse_number(self, text: &str) -> Result<Value, Wrong> {
        let (units, ..) = self.units_and_range();
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let factor = if unit.is_empty() { Some(1) } else { factor };
        let number = i128::from_str(&digits.trim_end().replace('_', ""));
        match (number, factor) {
            (Ok(number), Some(factor)) => self.check_number(number.checked_mul(factor.into()), text),
            _ => Err(self.not_a_number(text)),
        }
    }

    fn not_a_number(self, text: &str) -> Wrong {
        let advice = match self {
            Kind::Millis { .. } => "write milliseconds, such as 500, or a unit: 500ms, 2s, 5m, 1h",
            Kind::Bytes { .. } => "write bytes, such as 65_536, or a unit: 64KiB, 1MiB, 2GiB",
            _ => "write digits, such as 20_000",
        };
        Wrong::new(format!("is {text:?}, which is not {self}"), advice)
    }

    /// `number` is None if it does not fit an `i128`; `written` is the text in the source.
    fn check_number(self, number: Option<i128>, written: &str) -> Result<Value, Wrong> {
        let (_, min, max) = self.units_and_range();
        let fits = number.and_then(|number| u64::try_from(number).ok()).filter(|n| (min..=max).contains(n));
        fits.map(Value::Number).ok_or_else(|| {
            let unit = match self {
                Kind::Millis { .. } => " ms",
                Kind::Bytes { .. } => " bytes",
                _ => "",
            };
            Wrong::new(format!("is {written}: it must be from {min} to {max}{unit}"), "")
        })
    }

    fn check_text(self, text: &str) -> Result<(), Wrong> {
        if let Some(control) = text.chars().find(|letter| letter.is_control()) {
            return Err(Wrong::new(format!("has the control character {control:?}"), "use printable text"));
        }
        if text.is_empty() && !matches!(self, Kind::Text | Kind::Zone) {
            return Err(Wrong::new("is empty", format!("give {self}")));
        }
        match self {
            Kind::Zone => Zone::new(text).map(drop).map_err(|invalid| {
                Wrong::new(format!("can't be a label: {invalid}"), "take a short one, such as west-1")
            }),
            Kind::Address => check_address(text),
            Kind::Choice(words) => check_choice(words, text),
            Kind::ClusterId => check_cluster_id(text),
            Kind::Filter => text.split(',').try_for_each(|directive| check_directive(directive.trim())),
            _ => Ok(()),
        }
    }
}

fn read_endpoints<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Value, Wrong> {
    let endpoint = |text: &str| Endpoint::parse(text.strip_prefix("http://").unwrap_or(text));
    let endpoints = texts.take(ENDPOINTS_MAX).map(endpoint).collect::<Result<_, _>>()?;
    Ok(Value::Endpoints(endpoints))
}

/// Returns the integer, or None if it has more digits than any setting.
pub(crate) fn integer(value: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(value.as_str(), value.radix()).ok()
}

/// Returns the TOML name of a type, with its article.
pub(crate) fn with_article(type_name: &str) -> String {
    let article = if type_name.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {type_name}")
}

fn check_address(text: &str) -> Result<(), Wrong> {
    SocketAddr::from_str(text).map(|_| ()).map_err(|_| {
        let advice = "give an address of this machine and a port, such as 127.0.0.1:7400 or [::1]:7400; \
                      0.0.0.0:7400 listens on all";
        Wrong::new(format!("is {text:?}, which is not an IP address and a port"), advice)
    })
}

fn check_choice(words: &[&str], text: &str) -> Result<(), Wrong> {
    if words.contains(&text) {
        return Ok(());
    }
    let advice = match nearest(text, words.iter().copied()) {
        Some(word) => format!("did you mean {word:?}?"),
        None => String::new(),
    };
    Err(Wrong::new(format!("is {text:?}: it must be {}", words.join(" or ")), advice))
}

fn check_cluster_id(text: &str) -> Result<(), Wrong> {
    if text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(());
    }
    let advice =
        "leave it out to have it follow from cluster.name, or copy it from `config show` of another node";
    Err(Wrong::new(format!("is {text:?}: it must be 16 hexadecimal digits"), advice))
}

/// Refuses a lone word that is not a level: it would be taken for the name of a target, and all lines of it be logged.
fn check_directive(directive: &str) -> Result<(), Wrong> {
    if directive.contains('[') {
        return Ok(());
    }
    let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
    if LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    let advice = match nearest(&level.to_ascii_lowercase(), LEVELS) {
        Some(known) => format!("did you mean {known:?}?"),
        None => format!("write one of {}, or target=level", LEVELS.join(", ")),
    };
    Err(Wrong::new(format!("has {directive:?}, and {level:?} is no level"), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Kind = Kind::Number { min: 1, max: 20_000 };
    const MILLIS: Kind = Kind::Millis { min: 1, max: 600_000 };
    const BYTES: Kind = Kind::Bytes { min: 0, max: 1 << 32 };

    fn read(kind: Kind, text: &str) -> Result<u64, String> {
        match kind.parse_text(text) {
            Ok(Value::Number(number)) => Ok(number),
            Ok(other) => panic!("{other:?}"),
            Err(wrong) => Err(wrong.what),
        }
    }

    #[test]
    fn numbers_may_have_underscores_and_units() {
        assert_eq!(read(COUNT, "20_000"), Ok(20_000));
        assert_eq!(read(MILLIS, "500"), Ok(500));
        assert_eq!(read(MILLIS, "500ms"), Ok(500));
        assert_eq!(read(MILLIS, "2s"), Ok(2_000));
        assert_eq!(read(MILLIS, "2 s"), Ok(2_000));
        assert_eq!(read(MILLIS, "10m"), Ok(600_000));
        assert_eq!(read(BYTES, "64KiB"), Ok(65_536));
        assert_eq!(read(BYTES, "4GiB"), Ok(1 << 32));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "x", "1.5", "1s", "0x10", "1 2", "--1", "s"] {
            assert!(
                read(COUNT, text).unwrap_err().contains("is not a whole number from 1 to 20000"),
                "{text}"
            );
        }
        for text in ["5MB", "5mib", "5s", "1.5MiB"] {
            assert!(read(BYTES, text).unwrap_err().contains("which is not bytes"), "{text}");
        }
        assert!(read(MILLIS, "5d").is_err());
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_the_range() {
        assert_eq!(read(COUNT, "0").unwrap_err(), "is 0: it must be from 1 to 20000");
        assert_eq!(read(COUNT, "-5").unwrap_err(), "is -5: it must be from 1 to 20000");
        assert_eq!(read(MILLIS, "11m").unwrap_err(), "is 11m: it must be from 1 to 600000 ms");
        let huge = "9".repeat(38);
        assert!(read(MILLIS, &format!("{huge}h")).unwrap_err().contains("must be from 1"));
    }

    #[test]
    fn a_switch_is_true_or_false() {
        assert_eq!(Kind::Bool.parse_text("true"), Ok(Value::Bool(true)));
        assert_eq!(Kind::Bool.parse_text("0"), Ok(Value::Bool(false)));
        for text in ["", "yes", "TRUE", "2"] {
            assert!(Kind::Bool.parse_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn endpoints_are_separated_by_commas_and_may_look_like_urls() {
        let read = |text: &str| match Kind::Endpoints.parse_text(text) {
            Ok(Value::Endpoints(all)) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            other => format!("{other:?}"),
        };
        assert_eq!(read("http://10.0.0.1:7400, Node-2:7400"), "10.0.0.1:7400 node-2:7400");
        assert_eq!(read("[\"10.0.0.1:7400\", \"[::1]:7400\"]"), "10.0.0.1:7400 [::1]:7400");
        assert_eq!(
            (read(""), read("[]"), read("[::1]:1")),
            (String::new(), String::new(), "[::1]:1".to_owned())
        );
        assert!(Kind::Endpoints.parse_text("10.0.0.1").is_err());
    }

    #[test]
    fn texts_are_checked_by_their_kind() {
        let good = [
            (Kind::Text, ""),
            (Kind::Name, "prod"),
            (Kind::Address, "[::]:7400"),
            (Kind::Choice(&["pretty", "json"]), "json"),
            (Kind::ClusterId, "00ff00ff00ff00ff"),
            (Kind::Filter, "info"),
            (Kind::Filter, "WARN, tollgate_server=debug,hyper=off"),
            (Kind::Filter, "info,[turn{group=1}]=trace"),
        ];
        for (kind, text) in good {
            assert_eq!(kind.parse_text(text), Ok(Value::Text(text.to_owned())));
        }
        let bad = [
            (Kind::Text, "a\nb"),
            (Kind::Name, ""),
            (Kind::Path, ""),
            (Kind::Address, "localhost:7400"),
            (Kind::Address, "127.0.0.1"),
            (Kind::Choice(&["pretty", "json"]), "jsno"),
            (Kind::ClusterId, "12"),
            (Kind::ClusterId, "+0ff00ff00ff00ff"),
            (Kind::Filter, "verbose"),
            (Kind::Filter, "info,tollgate_server=loud"),
            (Kind::Filter, "info,"),
        ];
        for (kind, text) in bad {
            assert!(kind.parse_text(text).is_err(), "{kind:?} {text:?}");
        }
        assert_eq!(Kind::Filter.parse_text("inof").unwrap_err().advice, "did you mean \"info\"?");
    }
}
