//! Time spans as people type and read them: `500ms`, `30s`, `1m30s`.

use std::time::Duration;

/// Units, longest first, with their length in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const ADVICE: &str = "write a number with a unit, such as 500ms, 30s, 5m or 1h30m";

/// Reads a span. The error says what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(format!("is empty: {ADVICE}"));
    }
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| ADVICE.to_owned())?;
        if unit.is_empty() {
            return Err(format!("{number} has no unit: write {number}s or {number}ms"));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit.trim());
        let (_, unit_ms) =
            known.ok_or_else(|| format!("'{}' is no unit: use ms, s, m, h or d", unit.trim()))?;
        total_ms = number
            .checked_mul(*unit_ms)
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or_else(|| "is longer than can be counted".to_owned())?;
        rest = after;
    }
    Ok(Duration::from_millis(total_ms))
}

/// Formats a span for people: two units at most, the second only where it matters.
pub(crate) fn text(span: Duration) -> String {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..10_000 => match ms % 1_000 / 100 {
            0 => format!("{}s", ms / 1_000),
            tenths => format!("{}.{tenths}s", ms / 1_000),
        },
        10_000..60_000 => format!("{}s", ms / 1_000),
        60_000..3_600_000 => two(ms / 60_000, "m", ms % 60_000 / 1_000, "s"),
        3_600_000..86_400_000 => two(ms / 3_600_000, "h", ms % 3_600_000 / 60_000, "m"),
        _ => two(ms / 86_400_000, "d", ms % 86_400_000 / 3_600_000, "h"),
    }
}

fn two(first: u64, unit: &str, second: u64, below: &str) -> String {
    if second == 0 { format!("{first}{unit}") } else { format!("{first}{unit}{second}{below}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn a_wrong_span_says_what_to_write() {
        for (text, advice) in [
            ("30", "30 has no unit: write 30s or 30ms"),
            ("30x", "'x' is no unit"),
            ("s", "500ms, 30s, 5m"),
            ("-3s", "500ms, 30s, 5m"),
            ("1.5s", "'.' is no unit"),
            ("", "is empty"),
            ("99999999999999999999s", "500ms"),
            ("999999999999999999d", "longer than can be counted"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    #[test]
    fn spans_are_told_in_two_units_at_most() {
        for (ms, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_250, "1.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (192_000, "3m12s"),
            (7_500_000, "2h5m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(text(Duration::from_millis(ms)), expected);
        }
    }
}
