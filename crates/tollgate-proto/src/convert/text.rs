//! The strings that clients choose.

use crate::bad_field::{BadField, SizeLimit};
use tollgate_types::{Address, ClientId, Invalid, Key, Metadata, Name, Owner, Value};

/// A lock's name.
pub fn read_name(field: &'static str, text: &str) -> Result<Name, BadField> {
    read(field, Name::new(text))
}

/// The beginning of names; empty for all.
pub fn read_name_prefix<'a>(field: &'static str, text: &'a str) -> Result<&'a str, BadField> {
    check_prefix(field, text.as_bytes(), SizeLimit { name: Name::LIMIT, max: Name::BYTES_MAX }).map(|()| text)
}

/// Refuses a prefix that is longer than anything it could begin.
pub(super) fn check_prefix(field: &'static str, prefix: &[u8], limit: SizeLimit) -> Result<(), BadField> {
    if prefix.len() <= limit.max {
        return Ok(());
    }
    let says = format!("it has {} bytes: nothing it could begin has more than {}", prefix.len(), limit.max);
    Err(BadField::too_large(field, limit, says))
}

/// An owner; empty is the lease itself.
pub fn read_owner(field: &'static str, text: &str) -> Result<Owner, BadField> {
    read(field, Owner::new(text))
}

/// What a client calls itself; may be empty.
pub fn read_client_id(field: &'static str, text: &str) -> Result<ClientId, BadField> {
    read(field, ClientId::new(text))
}

/// Where a client was seen; may be empty.
pub fn read_address(field: &'static str, text: &str) -> Result<Address, BadField> {
    read(field, Address::new(text))
}

/// Why a lock is held; may be empty.
pub fn read_metadata(field: &'static str, text: &str) -> Result<Metadata, BadField> {
    read(field, Metadata::new(text))
}

/// Why a lock is taken away. Whoever takes it must say.
pub fn read_reason(field: &'static str, text: &str) -> Result<Metadata, BadField> {
    if text.trim().is_empty() {
        return Err(BadField::new(field, "say why: the holder and the audit will read it"));
    }
    read_metadata(field, text)
}

/// A register's key.
pub fn read_key(field: &'static str, bytes: &[u8]) -> Result<Key, BadField> {
    read(field, Key::new(bytes))
}

/// A register's value; may be empty.
pub fn read_value(field: &'static str, bytes: &[u8]) -> Result<Value, BadField> {
    read(field, Value::new(bytes))
}

fn read<T>(field: &'static str, result: Result<T, Invalid>) -> Result<T, BadField> {
    result.map_err(BadField::invalid(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader says of a text that it refuses.
    fn refused<T: std::fmt::Debug>(result: Result<T, BadField>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn good_texts_are_read_as_they_are() {
        assert_eq!(read_name("name", "jobs/1").unwrap().as_bytes(), b"jobs/1");
        assert_eq!(read_name_prefix("prefix", ""), Ok(""));
        assert_eq!(read_owner("owner", "").unwrap(), Owner::LEASE);
        assert_eq!(read_client_id("client_id", "").unwrap(), ClientId::NONE);
        assert_eq!(read_address("address", "10.0.0.1:9").unwrap().as_bytes(), b"10.0.0.1:9");
        assert_eq!(read_metadata("metadata", "").unwrap(), Metadata::NONE);
        assert_eq!(read_reason("reason", "host is gone").unwrap().as_bytes(), b"host is gone");
        assert_eq!(read_key("key", &[0, 255]).unwrap().as_bytes(), [0, 255]);
        assert_eq!(read_value("value", &[]).unwrap(), Value::EMPTY);
    }

    #[test]
    fn an_empty_or_over_long_text_is_refused_by_its_field() {
        assert_eq!(
            refused(read_name("near", "")),
            "bad field near: name is empty: give it at least one byte"
        );
        let long = "x".repeat(513);
        assert_eq!(
            refused(read_name("name", &long)),
            "bad field name: name has 513 bytes: at most 512 are allowed"
        );
        assert!(refused(read_name_prefix("prefix", &long)).contains("more than 512"));
        assert!(refused(read_owner("owner", &long)).contains("at most 64"));
        assert!(refused(read_client_id("client_id", &long)).contains("at most 128"));
        assert!(refused(read_address("address", &long)).contains("at most 64"));
        assert!(refused(read_metadata("metadata", &"x".repeat(4_097))).contains("at most 4096"));
        assert!(refused(read_key("key", &[])).contains("key is empty"));
        assert!(refused(read_key("key", &[0; 513])).contains("at most 512"));
        assert!(refused(read_value("value", &vec![0; 65_537])).contains("at most 65536"));
    }

    #[test]
    fn control_characters_are_refused() {
        assert!(refused(read_name("name", "a\nb")).contains("control character 0x0a at byte 1"));
        assert!(read_owner("owner", "\u{7f}").is_err());
        assert!(read_metadata("metadata", "\t").is_err());
    }

    #[test]
    fn taking_a_lock_away_needs_a_reason() {
        for none in ["", "  "] {
            assert!(refused(read_reason("reason", none)).starts_with("bad field reason: say why"));
        }
    }
}
