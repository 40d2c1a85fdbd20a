//! Suggestions for misspelt words.

/// Returns the known word nearest to `word`, if it is near enough for a typing mistake.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // In a short word at most one letter in three may be wrong, or everything would be near everything.
    let slips_max = (word.chars().count() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    scored.filter(|(slips, _)| *slips <= slips_max).min_by_key(|(slips, _)| *slips).map(|(_, found)| found)
}

/// Returns the number of letters that were added, left out, changed or swapped with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let changed = usize::from(left[i - 1] != right[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_counted_once() {
        assert_eq!(distance("zone", "zone"), 0);
        assert_eq!(distance("zoen", "zone"), 1);
        assert_eq!(distance("zon", "zone"), 1);
        assert_eq!(distance("zones", "zone"), 1);
        assert_eq!(distance("zune", "zone"), 1);
        assert_eq!(distance("", "zone"), 4);
    }

    #[test]
    fn only_a_near_word_is_suggested() {
        let known = ["heartbeat_ms", "tick_ms", "zone"];
        assert_eq!(nearest("hearbeat_ms", known), Some("heartbeat_ms"));
        assert_eq!(nearest("heartbeat", known), Some("heartbeat_ms"));
        assert_eq!(nearest("zoen", known), Some("zone"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("id", known), None);
    }
}
