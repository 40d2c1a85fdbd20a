//! Parser of lease ids on the command line, which accepts the printed form only.
//!
//! Invariant: plain digits are refused, with the ids that they may stand for, because they may be hex, as in the keys
//! of holders, or decimal, as in the JSON API.

use tollgate_client::LeaseId;

/// Reads an id. The error says what to write instead.
pub(crate) fn parse(text: &str) -> Result<LeaseId, String> {
    text.parse::<LeaseId>().map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_printed_and_digits_are_refused_with_what_to_write() {
        let id = LeaseId::new(0x1234_5678_9012_3456).unwrap();
        assert_eq!(parse(&id.to_string()), Ok(id));
        for digits in ["1234567890123456", "0x1234567890123456", "1311768467284833366"] {
            let says = parse(digits).unwrap_err();
            assert!(says.contains("L-1234567890123456"), "{digits}: {says}");
        }
        assert!(parse("zzz").unwrap_err().contains("lease ls"));
    }
}
