//! Lease ids as the command line writes and reads them: `L-` and sixteen hex digits.
//!
//! Bare digits are read as well. The JSON API writes ids in decimal, and a decimal number may have sixteen digits too.
//! Ids that the cluster or a client draws have nineteen or so in decimal, hardly ever sixteen; so sixteen digits are
//! hex, always, and a decimal number is read as one only if it has another length: a 0 in front gives it one.

use tollgate_client::LeaseId;

/// Reads an id: as it is written, sixteen hex digits, hex digits after `0x`, or a decimal number of any other length.
pub(crate) fn parse(text: &str) -> Result<LeaseId, String> {
    if text.starts_with("L-") {
        return text.parse::<LeaseId>().map_err(|invalid| invalid.to_string());
    }
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if text.len() == 16 => u64::from_str_radix(text, 16),
        None => text.parse(),
    };
    let number = number.map_err(|_| "is no lease id: copy it from `tollgate lease ls`".to_owned())?;
    LeaseId::new(number).map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_printed() {
        let id = LeaseId::new(0x1234_5678_9012_3456).unwrap();
        assert_eq!(parse(&id.to_string()), Ok(id));
        assert_eq!(parse("1"), Ok(LeaseId::new(1).unwrap()));
        assert_eq!(parse("0x1f"), Ok(LeaseId::new(31).unwrap()));
        assert_eq!(parse("01234567890123456"), Ok(LeaseId::new(1_234_567_890_123_456).unwrap()));
        assert_eq!(parse("1234567890123456"), Ok(id), "sixteen digits are hex");
        assert!(parse("zzz").unwrap_err().contains("lease ls"));
        assert!(parse("0").is_err());
    }
}
