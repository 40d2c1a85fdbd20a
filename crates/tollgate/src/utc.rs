//! Times in UTC as people write them: `2026-11-18T06:27:31Z`.

/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

/// Formats a time, given in milliseconds since 1970.
pub(crate) fn text(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3_600, second % 3_600 / 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Formats the time of day alone: `06:27:31Z`.
pub(crate) fn time_of_day(unix_ms: u64) -> String {
    text(unix_ms).split_off("1970-01-01T".len())
}

/// Returns year, month and day. Years are counted from March, so that a leap day is the last day of its year.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(text(seconds * 1_000 + 999), expected);
            assert!(expected.ends_with(&format!("T{}", time_of_day(seconds * 1_000))));
        }
    }
}
