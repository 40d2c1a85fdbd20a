//! Numbers, byte strings and lists as bytes: the primitives of the formats.
//!
//! A number is a LEB128 varint in its shortest form; a byte string or list has its length before it. Invariant:
//! `Reader` refuses any other form, so that there is one encoding of each value. Not here: the types of Tollgate
//! (`values`).

use tollgate_types::Invalid;

/// Reason why bytes are not a valid encoding. `at` is the offset of the refused value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a value.
    #[error("byte {at}: the value here is cut off by the end of the input")]
    Truncated {
        /// Offset at which the value begins.
        at: usize,
    },
    /// Bytes follow the last value.
    #[error("byte {at}: the value ends here, but {extra} more bytes follow")]
    Trailing {
        /// Offset at which the last value ends.
        at: usize,
        /// Number of bytes that follow.
        extra: usize,
    },
    /// A number over 64 bits, or not in its shortest form.
    #[error("byte {at}: this number has more bytes than it needs or can have")]
    BadVarint {
        /// Offset at which the number begins.
        at: usize,
    },
    /// The format has no such tag or flags.
    #[error("byte {at}: {tag:#04x} is not a known {what}")]
    UnknownTag {
        /// Kind of value that the tag selects.
        what: &'static str,
        /// The unknown tag.
        tag: u8,
        /// Offset of the tag.
        at: usize,
    },
    /// The bytes were written by a binary that is newer than this one, or not by Tollgate.
    #[error("the {what} has format version {found}: this binary reads up to version {supported}")]
    UnsupportedVersion {
        /// Kind of the encoded value.
        what: &'static str,
        /// Version in the bytes.
        found: u8,
        /// Newest version that this binary reads.
        supported: u8,
    },
    /// A value that its constructor refused.
    #[error("byte {at}: {source}")]
    Invalid {
        /// Offset at which the value begins.
        at: usize,
        /// Rule that the value broke.
        source: Invalid,
    },
    /// A string or list is longer than any can be.
    #[error("byte {at}: {what} of length {len}: at most {max} is possible")]
    TooLong {
        /// Kind of the string or list.
        what: &'static str,
        /// Length: bytes of a string, elements of a list.
        len: u64,
        /// Greatest length.
        max: u64,
        /// Offset at which the value begins.
        at: usize,
    },
    /// The elements of a list are not in the canonical order.
    #[error("byte {at}: this element of {what} comes before the one ahead of it: they must be sorted")]
    Unsorted {
        /// Kind of the list.
        what: &'static str,
        /// Offset at which the element begins.
        at: usize,
    },
}

/// Appends values to a buffer.
///
/// The values it is given are valid, and it asserts what the types leave open (the length of a list, a `Mode` or
/// `Names` made by hand): an entry that no replica can decode must not reach the log.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Makes a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { out }
    }

    /// Writes one byte: versions, tags, flags.
    #[inline]
    pub fn u8(&mut self, byte: u8) {
        self.out.push(byte);
    }

    /// Writes a number: seven bits per byte, lowest first, the top bit set on all bytes but the last.
    #[inline]
    pub fn varint(&mut self, number: u64) {
        if number < 0x80 {
            self.out.push(low_byte(number));
        } else {
            self.long_varint(number);
        }
    }

    fn long_varint(&mut self, mut number: u64) {
        // Gathered first: reserving room costs more than the bytes.
        let (mut bytes, mut len) = ([0; VARINT_BYTES_MAX], 0);
        while number >= 0x80 {
            bytes[len] = low_byte(number) | 0x80;
            number >>= 7;
            len += 1;
        }
        bytes[len] = low_byte(number);
        self.out.extend_from_slice(&bytes[..=len]);
    }

    /// Writes a byte string, after its length.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// Writes the output of `write`, after its length. Made for pieces below 128 bytes, for which nothing is moved.
    pub fn with_length(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let start = self.out.len();
        self.out.push(0);
        write(&mut Writer::new(self.out));
        let mut len = self.out.len() - start - 1;
        let mut at = start;
        while len >= 0x80 {
            self.out[at] = low_byte(len as u64) | 0x80;
            len >>= 7;
            at += 1;
            self.out.insert(at, 0);
        }
        self.out[at] = low_byte(len as u64);
    }

    /// Writes 1 for true, 0 for false.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Writes 0, or 1 and the value.
    #[inline]
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Writes the number of elements, which the elements follow. Panics if a reader would refuse the number.
    #[inline]
    pub fn count(&mut self, what: &'static str, count: usize, max: usize) {
        assert!(count <= max, "{what} of length {count}: the format has room for {max}");
        self.varint(count as u64);
    }

    /// Writes a list, after the number of its elements. Panics if a reader would refuse that number.
    pub fn list<T>(
        &mut self,
        what: &'static str,
        max: usize,
        list: &[T],
        mut write: impl FnMut(&mut Self, &T),
    ) {
        self.count(what, list.len(), max);
        for element in list {
            write(self, element);
        }
    }
}

/// 64 bits, seven per byte.
const VARINT_BYTES_MAX: usize = 10;

#[allow(clippy::cast_possible_truncation, reason = "masked to seven bits")]
const fn low_byte(number: u64) -> u8 {
    (number & 0x7f) as u8
}

/// Takes values from the front of a byte slice. After an error its position means nothing, and reading must stop.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Makes a reader that starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Returns the offset of the next value, for errors about it.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Refuses bytes after the last value.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { at: self.at, extra }),
        }
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated { at: self.at })?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a number in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let at = self.at;
        let mut number = 0;
        for (i, &byte) in self.bytes[at..].iter().take(VARINT_BYTES_MAX).enumerate() {
            // The tenth byte has room for one bit. A last byte of 0 is superfluous.
            if (i == VARINT_BYTES_MAX - 1 && byte > 1) || (i > 0 && byte == 0) {
                return Err(DecodeError::BadVarint { at });
            }
            number |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at = at + i + 1;
                return Ok(number);
            }
        }
        Err(DecodeError::Truncated { at })
    }

    /// Reads a number of at most 32 bits.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let at = self.at;
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| {
            let source = Invalid::OutOfRange { what, value, min: 0, max: u64::from(u32::MAX) };
            DecodeError::Invalid { at, source }
        })
    }

    /// Reads a byte string of at most `max` bytes.
    #[inline]
    pub fn bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], DecodeError> {
        let at = self.at;
        let len = self.varint()?;
        let max = max as u64;
        if len > max {
            return Err(DecodeError::TooLong { what, len, max, at });
        }
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let bytes = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(DecodeError::Truncated { at })?;
        self.at += bytes.len();
        Ok(bytes)
    }

    /// Reads 1 for true or 0 for false, and nothing else.
    #[inline]
    pub fn bool(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        Ok(self.flags(what, 1)? == 1)
    }

    /// Reads a byte of flags; only those in `known` may be set.
    #[inline]
    pub fn flags(&mut self, what: &'static str, known: u8) -> Result<u8, DecodeError> {
        let at = self.at;
        match self.u8()? {
            tag if tag & !known == 0 => Ok(tag),
            tag => Err(DecodeError::UnknownTag { what, tag, at }),
        }
    }

    /// Reads one byte for which `from_tag` returns a value.
    #[inline]
    pub fn tag<T>(
        &mut self,
        what: &'static str,
        from_tag: impl FnOnce(u8) -> Option<T>,
    ) -> Result<T, DecodeError> {
        let at = self.at;
        let tag = self.u8()?;
        from_tag(tag).ok_or(DecodeError::UnknownTag { what, tag, at })
    }

    /// Reads a value or none, as [`Writer::option`] wrote it.
    #[inline]
    pub fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.bool(what)? { read(self).map(Some) } else { Ok(None) }
    }

    /// Reads the number of elements of a list. Reserving room for that many is safe: each takes at least `bytes_min`
    /// bytes (at least one), and that many bytes are left.
    pub fn count(&mut self, what: &'static str, max: usize, bytes_min: usize) -> Result<usize, DecodeError> {
        let at = self.at;
        let len = self.varint()?;
        if len > max as u64 {
            return Err(DecodeError::TooLong { what, len, max: max as u64, at });
        }
        let possible = self.remaining() / bytes_min.max(1);
        usize::try_from(len).ok().filter(|len| *len <= possible).ok_or(DecodeError::Truncated { at })
    }

    /// Reads a list, as [`Writer::list`] wrote it; `bytes_min` as in [`Reader::count`].
    pub fn list<T>(
        &mut self,
        what: &'static str,
        max: usize,
        bytes_min: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.count(what, max, bytes_min)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Turns a constructor's error into a decoding error for the value that began at `at`.
    #[inline]
    pub fn valid<T>(at: usize, result: Result<T, Invalid>) -> Result<T, DecodeError> {
        result.map_err(|source| DecodeError::Invalid { at, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out));
        out
    }

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let cases: &[(u64, &[u8])] = &[
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ];
        for &(number, bytes) in cases {
            assert_eq!(written(|w| w.varint(number)), bytes);
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.varint(), Ok(number));
            assert_eq!(reader.finish(), Ok(()));
        }
        for shift in 0..64 {
            for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                assert_eq!(Reader::new(&written(|w| w.varint(number))).varint(), Ok(number));
            }
        }
    }

    #[test]
    fn a_number_in_a_longer_form_is_refused() {
        let bad: [&[u8]; 5] = [
            &[0x80, 0],
            &[0xff, 0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0],
        ];
        for bytes in bad {
            assert_eq!(Reader::new(bytes).varint(), Err(DecodeError::BadVarint { at: 0 }), "{bytes:x?}");
        }
        assert_eq!(Reader::new(&[0xff; 9]).varint(), Err(DecodeError::Truncated { at: 0 }));
        assert_eq!(Reader::new(&[]).varint(), Err(DecodeError::Truncated { at: 0 }));
    }

    #[test]
    fn a_length_is_held_against_the_bytes_that_are_left() {
        let bytes = [4, b'a', b'b', b'c'];
        assert_eq!(Reader::new(&bytes).bytes("it", 9), Err(DecodeError::Truncated { at: 0 }));
        let too_long = DecodeError::TooLong { what: "it", len: 4, max: 3, at: 0 };
        assert_eq!(Reader::new(&bytes).bytes("it", 3), Err(too_long.clone()));
        assert_eq!(Reader::new(&bytes).count("it", 3, 1), Err(too_long));
        assert_eq!(Reader::new(&bytes).count("it", 9, 1), Err(DecodeError::Truncated { at: 0 }));
        assert_eq!(
            Reader::new(&bytes[..=2]).count("it", usize::MAX, 0),
            Err(DecodeError::Truncated { at: 0 })
        );
        let huge = written(|w| w.varint(u64::MAX));
        assert_eq!(Reader::new(&huge).count("it", usize::MAX, 8), Err(DecodeError::Truncated { at: 0 }));
        assert_eq!(Reader::new(&huge).bytes("it", usize::MAX), Err(DecodeError::Truncated { at: 0 }));
        assert_eq!(Reader::new(&[3, b'a', b'b', b'c']).bytes("it", 3), Ok(b"abc".as_slice()));
        assert_eq!(Reader::new(&[1, b'a', b'b', b'c']).count("it", 9, 3), Ok(1));
    }

    #[test]
    fn a_choice_is_0_or_1() {
        let some = written(|w| w.option(Some(300), Writer::varint));
        assert_eq!(some, [1, 0xac, 2]);
        assert_eq!(Reader::new(&some).option("it", Reader::varint), Ok(Some(300)));
        assert_eq!(written(|w| w.option(None, Writer::varint)), [0]);
        assert_eq!(Reader::new(&[0]).option("it", Reader::varint), Ok(None));
        let unknown = DecodeError::UnknownTag { what: "it", tag: 2, at: 0 };
        assert_eq!(Reader::new(&[2, 1]).option("it", Reader::varint), Err(unknown));
    }

    #[test]
    fn bytes_after_the_last_value_are_refused() {
        let mut reader = Reader::new(&[7, 8, 9]);
        assert_eq!(reader.u8(), Ok(7));
        assert_eq!(reader.finish(), Err(DecodeError::Trailing { at: 1, extra: 2 }));
    }

    #[test]
    #[should_panic(expected = "steps of length 3: the format has room for 2")]
    fn a_list_that_no_reader_takes_is_not_written() {
        written(|w| w.list("steps", 2, &[1, 2, 3], |w, &n| w.varint(n)));
    }
}
