//! Strings and byte strings that clients choose.

use crate::bad_field::{BadField, SizeLimit};
use tollgate_types::{Address, ClientId, Invalid, Key, Metadata, Name, Owner, Reason, Value};

/// Reads a lock's name.
pub fn read_name(field: &'static str, text: &str) -> Result<Name, BadField> {
    read(field, Name::new(text))
}

/// Reads a prefix of lock names; empty for all locks.
pub fn read_name_prefix<'a>(field: &'static str, text: &'a str) -> Result<&'a str, BadField> {
    check_prefix(field, text.as_bytes(), SizeLimit { name: Name::LIMIT, max: Name::BYTES_MAX }).map(|()| text)
}

/// Refuses a prefix that is longer than any name or key can be.
pub(super) fn check_prefix(field: &'static str, prefix: &[u8], limit: SizeLimit) -> Result<(), BadField> {
    if prefix.len() <= limit.max {
        return Ok(());
    }
    let says = format!("it has {} bytes: nothing it could begin has more than {}", prefix.len(), limit.max);
    Err(BadField::too_large(field, limit, says))
}

/// Reads an owner; empty is the lease itself.
pub fn read_owner(field: &'static str, text: &str) -> Result<Owner, BadField> {
    read(field, Owner::new(text))
}

/// Reads the name that a client gives itself; may be empty.
pub fn read_client_id(field: &'static str, text: &str) -> Result<ClientId, BadField> {
    read(field, ClientId::new(text))
}

/// Reads the address from which a client was seen; may be empty.
pub fn read_address(field: &'static str, text: &str) -> Result<Address, BadField> {
    read(field, Address::new(text))
}

/// Metadata on the wire: text in one field, and bytes that are not text in another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataFields {
    /// Value of the field `metadata`.
    pub metadata: String,
    /// Value of the field `metadata_bytes`.
    pub metadata_bytes: Vec<u8>,
}

/// Reads the metadata of a claim from one of the two fields `metadata` and `metadata_bytes`; may be empty.
pub fn read_metadata(text: &str, bytes: &[u8]) -> Result<Metadata, BadField> {
    match (text.is_empty(), bytes.is_empty()) {
        (false, false) => {
            let says = "metadata is given as well: give text as metadata, and other bytes as metadata_bytes";
            Err(BadField::new("metadata_bytes", says))
        }
        (true, false) => read("metadata_bytes", Metadata::new(bytes)),
        _ => read("metadata", Metadata::new(text)),
    }
}

/// Returns the metadata fields for an answer: text as it is; other bytes unchanged, and also escaped for people.
pub fn write_metadata(metadata: &Metadata) -> MetadataFields {
    match metadata.as_text() {
        Some(text) => MetadataFields { metadata: text.to_owned(), metadata_bytes: Vec::new() },
        None => {
            MetadataFields { metadata: metadata.to_string(), metadata_bytes: metadata.as_bytes().to_vec() }
        }
    }
}

/// Returns an upper bound for the length of metadata in an answer, both fields together.
pub fn metadata_fields_len(metadata: &Metadata) -> usize {
    /// Greatest length of one byte after escaping.
    const ESCAPED_BYTES_MAX: usize = 6;
    match metadata.as_text() {
        Some(text) => text.len(),
        None => (ESCAPED_BYTES_MAX + 1) * metadata.len(),
    }
}

/// Reads the reason for taking a lock away, which must be given.
pub fn read_reason(field: &'static str, text: &str) -> Result<Reason, BadField> {
    if text.trim().is_empty() {
        return Err(BadField::new(field, "say why: the holder and the audit will read it"));
    }
    read(field, Reason::new(text))
}

/// Reads a register's key.
pub fn read_key(field: &'static str, bytes: &[u8]) -> Result<Key, BadField> {
    read(field, Key::new(bytes))
}

/// Reads a register's value; may be empty.
pub fn read_value(field: &'static str, bytes: &[u8]) -> Result<Value, BadField> {
    read(field, Value::new(bytes))
}

fn read<T>(field: &'static str, result: Result<T, Invalid>) -> Result<T, BadField> {
    result.map_err(BadField::invalid(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error message of a reader that refuses a text.
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
        assert_eq!(read_metadata("", b"").unwrap(), Metadata::NONE);
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
        let long = read_metadata(&"\n".repeat(4_097), b"");
        assert_eq!(refused(long), "bad field metadata: metadata has 4097 bytes: at most 4096 are allowed");
        assert!(refused(read_metadata("", &[0xff; 4_097])).starts_with("bad field metadata_bytes: "));
        assert!(refused(read_key("key", &[])).contains("key is empty"));
        assert!(refused(read_key("key", &[0; 513])).contains("at most 512"));
        assert!(refused(read_value("value", &vec![0; 65_537])).contains("at most 65536"));
    }

    #[test]
    fn control_characters_are_refused() {
        assert!(refused(read_name("name", "a\nb")).contains("control character 0x0a at byte 1"));
        assert!(read_owner("owner", "\u{7f}").is_err());
        assert!(refused(read_reason("reason", "a\tb")).contains("control character 0x09 at byte 1"));
    }

    #[test]
    fn metadata_is_text_in_one_field_or_any_bytes_in_another() {
        let text = "{\n  \"a\": 1\n}\u{85}";
        assert_eq!(read_metadata(text, b"").unwrap().as_bytes(), text.as_bytes());
        assert_eq!(read_metadata("", b"\0\xff").unwrap().as_bytes(), b"\0\xff");
        assert_eq!(read_metadata("", text.as_bytes()).unwrap().as_bytes(), text.as_bytes());
        let both = refused(read_metadata("a", b"a"));
        assert!(both.starts_with("bad field metadata_bytes: metadata is given as well"), "{both}");
        assert!(read_metadata("", &[0xff; 4_096]).is_ok());
    }

    #[test]
    fn metadata_is_told_as_text_and_what_is_none_exactly_as_well() {
        let told = |bytes: &[u8]| write_metadata(&Metadata::new(bytes).unwrap());
        let text = "{\n}";
        assert_eq!(told(text.as_bytes()), MetadataFields { metadata: text.into(), metadata_bytes: vec![] });
        let other = MetadataFields { metadata: r"a\u{a}\xff".into(), metadata_bytes: b"a\n\xff".to_vec() };
        assert_eq!(told(b"a\n\xff"), other);
    }

    #[test]
    fn no_metadata_is_longer_on_the_wire_than_it_is_counted() {
        for of in ["\n", "\u{1b}", "\u{9b}", "\u{202e}", "a", "\u{61c}"] {
            for ending in [&b""[..], b"\xff"] {
                let metadata = Metadata::new([of.repeat(9).as_bytes(), ending].concat()).unwrap();
                let MetadataFields { metadata: text, metadata_bytes } = write_metadata(&metadata);
                assert!(text.len() + metadata_bytes.len() <= metadata_fields_len(&metadata), "{metadata}");
            }
        }
    }

    #[test]
    fn taking_a_lock_away_needs_a_reason() {
        for none in ["", "  "] {
            assert!(refused(read_reason("reason", none)).starts_with("bad field reason: say why"));
        }
    }
}
