//! Names, owners and the other strings that clients choose.
//!
//! The bounds here belong to the format: no limit can be set above them. The limits in force may be lower (`Limits`).

use crate::bytes::ShortBytes;
use crate::escaped::escaped;
use crate::invalid::Invalid;
use crate::slot::Slot;
use std::fmt;

fn check_len(
    what: &'static str,
    bytes: &[u8],
    (limit, min, max): (&'static str, usize, usize),
) -> Result<(), Invalid> {
    if bytes.len() < min {
        return Err(Invalid::Empty { what });
    }
    if bytes.len() > max {
        return Err(Invalid::TooLong { what, bytes: bytes.len(), limit, max });
    }
    Ok(())
}

fn check_text(what: &'static str, bytes: &[u8]) -> Result<(), Invalid> {
    // Most strings are printable ASCII, which this loop checks many bytes at a time.
    if bytes.iter().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    let text = std::str::from_utf8(bytes).map_err(|e| Invalid::NotUtf8 { what, at: e.valid_up_to() })?;
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => Err(Invalid::Control { what, code: u32::from(c), at }),
        None => Ok(()),
    }
}

/// Refuses text that can't be dialled: an address is empty or a host and a port. Whether the host exists is found out
/// by the caller that dials it.
fn check_host_port(what: &'static str, bytes: &[u8]) -> Result<(), Invalid> {
    check_text(what, bytes)?;
    if bytes.is_empty() {
        return Ok(());
    }
    let text = std::str::from_utf8(bytes).map_err(|e| Invalid::NotUtf8 { what, at: e.valid_up_to() })?;
    let is_port = |port: &str| {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        digits && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) && !text.contains(char::is_whitespace) => {
            Ok(())
        }
        _ => Err(Invalid::NotHostPort { what }),
    }
}

macro_rules! string_type {
    ($(#[$doc:meta])* $type:ident, $what:literal, $limit:literal, $min:literal..=$max:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(ShortBytes);

        impl $type {
            /// The greatest length in bytes that any limit can allow.
            pub const BYTES_MAX: usize = $max;

            /// Name of the limit on the length.
            pub const LIMIT: &'static str = $limit;

            /// Checks the rules of this type and keeps the bytes.
            pub fn new(from: impl AsRef<[u8]>) -> Result<Self, Invalid> {
                let bytes = from.as_ref();
                check_len($what, bytes, ($limit, $min, $max))?;
                let check: fn(&'static str, &[u8]) -> Result<(), Invalid> = $check;
                check($what, bytes)?;
                Ok(Self(ShortBytes::new(bytes)))
            }

            /// The bytes, unchanged.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_slice()
            }

            /// Length in bytes.
            #[inline]
            pub fn len(&self) -> usize {
                self.as_bytes().len()
            }

            /// True if the length is 0.
            #[inline]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
            }
        }
    };
}

/// Displays text, or bytes that are likely to be text, without escapes.
macro_rules! shown_as_it_is {
    ($($type:ident)*) => {
        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&String::from_utf8_lossy(self.as_bytes()))
            }
        })*
    };
}

shown_as_it_is! { Name Key Owner ClientId Address Reason Value HostPort Zone }

#[allow(clippy::unnecessary_wraps, reason = "one of the checks that a string type can have")]
fn any_bytes(_: &'static str, _: &[u8]) -> Result<(), Invalid> {
    Ok(())
}

string_type! {
    /// A lock's name: 1 to 512 bytes of UTF-8 without control characters.
    ///
    /// Names that share the text inside their first `{...}` share a slot, and so a group:
    ///
    /// ```
    /// use tollgate_types::Name;
    /// let (a, b) = (Name::new("{orders}/42")?, Name::new("{orders}/43")?);
    /// assert_eq!(a.slot(), b.slot());
    /// # Ok::<(), tollgate_types::Invalid>(())
    /// ```
    Name, "name", "name_bytes_max", 1..=512, check_text
}

string_type! {
    /// A register's key: 1 to 512 bytes, any bytes.
    Key, "key", "key_bytes_max", 1..=512, any_bytes
}

string_type! {
    /// The logical thread of control inside a lease: up to 64 bytes of UTF-8 without control characters.
    /// The empty owner is the lease itself.
    Owner, "owner", "owner_bytes_max", 0..=64, check_text
}

string_type! {
    /// The name that a client gives itself: up to 128 bytes of UTF-8 without control characters.
    ClientId, "client id", "client_id_bytes_max", 0..=128, check_text
}

string_type! {
    /// The last known network address of a lease's client, as text: up to 64 bytes of UTF-8 without control characters.
    Address, "address", "address_bytes_max", 0..=64, check_text
}

string_type! {
    /// Information that a claim carries for people and programs that look at the lock: up to 4 KiB, any bytes. Often
    /// text.
    ///
    /// ```
    /// use tollgate_types::Metadata;
    /// let json = Metadata::new("{\n  \"build\": 42\n}")?;
    /// assert_eq!(json.as_text(), Some("{\n  \"build\": 42\n}"));
    /// assert_eq!(json.to_string(), r#"{\u{a}  "build": 42\u{a}}"#);
    /// # Ok::<(), tollgate_types::Invalid>(())
    /// ```
    Metadata, "metadata", "metadata_bytes_max", 0..=4096, any_bytes
}

string_type! {
    /// The reason for a forced release, for people: up to 4 KiB of UTF-8 without control characters.
    Reason, "reason", "metadata_bytes_max", 0..=4096, check_text
}

string_type! {
    /// A register's value: up to 64 KiB, any bytes.
    Value, "value", "value_bytes_max", 0..=65536, any_bytes
}

string_type! {
    /// The address at which a node can be dialled: a host, by name or address, and a port, up to 259 bytes; empty if
    /// not known.
    HostPort, "address of a node", "node_address_bytes_max", 0..=259, check_host_port
}

string_type! {
    /// The location of a node, as a label (rack, building, region): up to 64 bytes of UTF-8 without control characters.
    Zone, "zone", "zone_bytes_max", 0..=64, check_text
}

impl Name {
    /// The hash bucket of this name.
    pub fn slot(&self) -> Slot {
        Slot::of(self.as_bytes())
    }
}

impl Key {
    /// The hash bucket of this key.
    pub fn slot(&self) -> Slot {
        Slot::of(self.as_bytes())
    }
}

impl Owner {
    /// The lease itself, which takes no part in deadlock detection.
    pub const LEASE: Owner = Owner(ShortBytes::EMPTY);
}

impl ClientId {
    /// A client that gave no name.
    pub const NONE: ClientId = ClientId(ShortBytes::EMPTY);
}

impl Address {
    /// Unknown address.
    pub const NONE: Address = Address(ShortBytes::EMPTY);
}

impl HostPort {
    /// Unknown address.
    pub const NONE: HostPort = HostPort(ShortBytes::EMPTY);
}

impl Zone {
    /// No zone configured.
    pub const NONE: Zone = Zone(ShortBytes::EMPTY);
}

impl Value {
    /// The value without bytes.
    pub const EMPTY: Value = Value(ShortBytes::EMPTY);
}

impl Metadata {
    /// Empty metadata.
    pub const NONE: Metadata = Metadata(ShortBytes::EMPTY);

    /// The metadata as text, including line breaks and other control characters; none if it is not UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }

    /// True if the metadata is UTF-8 without control characters.
    pub fn is_plain(&self) -> bool {
        self.check_plain().is_ok()
    }

    /// Returns the rule that keeps the metadata from being plain text.
    pub fn check_plain(&self) -> Result<(), Invalid> {
        check_text("metadata", self.as_bytes())
    }

    /// The metadata as plain text of the same length, so that every length limit applies as before: a space for each
    /// line break and tab, and a question mark for each byte of another control character or of bytes that are not
    /// UTF-8.
    #[must_use]
    pub fn to_plain(&self) -> Metadata {
        let mut plain = Vec::with_capacity(self.len());
        for chunk in self.as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\n' | '\r' | '\t' => plain.push(b' '),
                    control if control.is_control() => plain.extend(vec![b'?'; control.len_utf8()]),
                    printable => plain.extend(printable.encode_utf8(&mut [0; 4]).bytes()),
                }
            }
            plain.extend(chunk.invalid().iter().map(|_| b'?'));
        }
        Metadata(ShortBytes::new(&plain))
    }
}

/// Writes the metadata escaped, because it must be shown on one line.
impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(self.as_bytes()).fmt(f)
    }
}

impl Reason {
    /// No reason given.
    pub const NONE: Reason = Reason(ShortBytes::EMPTY);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limit;

    #[test]
    fn a_refused_string_says_which_rule_broke() {
        let says = |r: Result<Name, Invalid>| r.unwrap_err().to_string();
        assert_eq!(says(Name::new("")), "name is empty: give it at least one byte");
        assert_eq!(says(Name::new("x".repeat(513))), "name has 513 bytes: at most 512 are allowed");
        assert_eq!(says(Name::new(b"ab\xff")), "name is not UTF-8 from byte 2 on");
        assert_eq!(
            says(Name::new("ab\n")),
            "name has the control character 0x0a at byte 2: use printable text"
        );
        assert!(Name::new("x".repeat(512)).is_ok());
    }

    /// The rule of `check_text`, checked character by character.
    fn is_text(bytes: &[u8]) -> bool {
        std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control))
    }

    #[test]
    fn what_is_seen_at_a_glance_is_what_a_close_look_sees() {
        let odd = ["", "\u{7f}", "\u{85}", "\u{9f}", "\u{a0}", "\u{e9}", "\0", "\t", "\u{1f512}"];
        let plain = ["", "jobs", "a much longer name, of more bytes than are looked at together ~ "];
        for before in plain {
            for after in plain {
                let text = odd.map(|odd| format!("{before}{odd}{after}").into_bytes());
                let byte = (0..=u8::MAX).map(|byte| [before.as_bytes(), &[byte], after.as_bytes()].concat());
                for bytes in text.into_iter().chain(byte) {
                    assert_eq!(check_text("name", &bytes).is_ok(), is_text(&bytes), "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn an_address_of_a_node_has_a_host_and_a_port_or_is_not_known() {
        for good in
            ["", "10.0.0.1:7401", "[::1]:1", "node-1.example:65535", &format!("{}:65535", "h".repeat(253))]
        {
            assert_eq!(HostPort::new(good).unwrap().to_string(), good);
        }
        for bad in ["host", ":7401", "host:", "host:0", "host:65536", "host:+1", "a b:1", "a\n:1"] {
            assert!(HostPort::new(bad).is_err(), "{bad:?}");
        }
        let says = HostPort::new("host").unwrap_err().to_string();
        assert_eq!(says, "address of a node is not a host and a port: write it such as 10.0.0.1:7401");
        assert!(HostPort::new(format!("{}:65535", "h".repeat(254))).is_err());
        assert_eq!((HostPort::new("").unwrap(), Zone::new("").unwrap()), (HostPort::NONE, Zone::NONE));
        assert!(Zone::new("z".repeat(64)).is_ok() && Zone::new("z".repeat(65)).is_err());
    }

    #[test]
    fn a_string_that_is_too_long_names_its_limit() {
        let limits = [Name::LIMIT, Metadata::LIMIT, Reason::LIMIT, Value::LIMIT];
        for limit in limits {
            assert!(Limit::ALL.iter().any(|known| known.name() == limit), "{limit}");
        }
        let refused = Owner::new("x".repeat(65)).unwrap_err();
        assert_eq!(refused, Invalid::TooLong { what: "owner", bytes: 65, limit: "owner_bytes_max", max: 64 });
    }

    #[test]
    fn metadata_is_any_bytes_up_to_its_limit_and_a_reason_is_text() {
        for bytes in [&b"{\n\t\"a\": 1\n}"[..], b"\0\xff\xfe", "\u{85}\u{202e}".as_bytes(), &[0xff; 4_096]] {
            assert_eq!(Metadata::new(bytes).unwrap().as_bytes(), bytes);
            assert_eq!(Reason::new(bytes).is_ok(), is_text(bytes), "{bytes:?}");
        }
        let long = Metadata::new([0xff; 4_097]).unwrap_err();
        assert_eq!(long.to_string(), "metadata has 4097 bytes: at most 4096 are allowed");
        assert_eq!(Reason::new("a\nb").unwrap_err().to_string().split(' ').next(), Some("reason"));
        assert_eq!(Metadata::new("täglich\n").unwrap().as_text(), Some("täglich\n"));
        assert_eq!(Metadata::new(b"\xff").unwrap().as_text(), None);
    }

    #[test]
    fn metadata_is_shown_on_one_line() {
        assert_eq!(Metadata::new(b"a\n\x1b[2J\xff").unwrap().to_string(), r"a\u{a}\u{1b}[2J\xff");
    }

    #[test]
    fn metadata_as_plain_text_keeps_its_length_and_all_that_was_printable() {
        let plain = |bytes: &[u8]| Metadata::new(bytes).unwrap().to_plain().to_string();
        assert_eq!(plain(b"{\n\t\"a\": 1\r\n}"), "{  \"a\": 1  }", "JSON stays what it was");
        assert_eq!(plain("ü\u{85}\0\u{202e}".as_bytes()), "ü???\\u{202e}");
        assert_eq!(plain(b"a\xff\xe2\x80b"), "a???b");
        for byte in 0..=u8::MAX {
            for bytes in [vec![byte], vec![b'a', byte, 0xc3, 0xa9], vec![0xe2, byte, 0xac], vec![byte; 4_096]]
            {
                let metadata = Metadata::new(&bytes).unwrap();
                let plain = metadata.to_plain();
                assert!(plain.is_plain() && plain.len() == bytes.len(), "{bytes:?}");
                assert_eq!(metadata.is_plain(), is_text(&bytes), "{bytes:?}");
                assert_eq!(metadata.is_plain(), metadata == plain, "{bytes:?}");
            }
        }
    }

    #[test]
    fn an_owner_may_be_empty_and_a_key_may_be_any_bytes() {
        assert_eq!(Owner::new("").unwrap(), Owner::LEASE);
        assert_eq!(Key::new(b"\0\xff").unwrap().as_bytes(), b"\0\xff");
        assert!(Key::new("").is_err());
    }
}
