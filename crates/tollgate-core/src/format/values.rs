//! The types of Tollgate as bytes, the same in the log and in snapshots.
//!
//! Invariant: reading goes through the constructors, so every value read is valid. If a value could have two forms
//! (names in any order, ranges that touch), only the canonical one is read.

use super::FORMAT_2;
use super::wire::{DecodeError, Reader, Writer};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, GroupMap, Invalid, Key, LeaseId, Limit, Limits, Lineage, LogTime,
    Metadata, Mode, NAMES_MAX, Name, Names, Owner, Reason, Revision, SEQ_RANGES_MAX, SLOTS, Seq, SeqRanges,
    Slot, Token, Value, WallTime,
};

/// Number of limits in version 1 of the formats. Once that version is released, one more limit needs one more version:
/// old entries must still decode.
const LIMITS_COUNT: usize = 22;
const _: () = assert!(LIMITS_COUNT == Limit::ALL.len(), "a new limit needs a new version of the formats");

macro_rules! strings {
    ($($method:ident, $type:ident, $what:literal;)*) => {
        /// Strings are their bytes after their length.
        impl Writer<'_> {
            $(#[inline]
            pub(crate) fn $method(&mut self, value: &$type) {
                self.bytes(value.as_bytes());
            })*
        }

        impl Reader<'_> {
            $(#[inline]
            pub(crate) fn $method(&mut self) -> Result<$type, DecodeError> {
                let at = self.at();
                let bytes = self.bytes($what, $type::BYTES_MAX)?;
                Reader::valid(at, $type::new(bytes))
            })*
        }
    };
}

strings! {
    name, Name, "name";
    key, Key, "key";
    owner, Owner, "owner";
    client_id, ClientId, "client id";
    address, Address, "address";
    reason, Reason, "reason";
    value, Value, "value";
}

/// Metadata is written like a string, but up to format 2 it is text without control characters, and binaries that know
/// no other format refuse anything else.
impl Writer<'_> {
    #[inline]
    pub(crate) fn metadata(&mut self, metadata: &Metadata, format: u8) {
        assert!(format > FORMAT_2 || metadata.is_plain(), "format {format} has no place for {metadata:?}");
        self.bytes(metadata.as_bytes());
    }
}

impl Reader<'_> {
    #[inline]
    pub(crate) fn metadata(&mut self, format: u8) -> Result<Metadata, DecodeError> {
        let at = self.at();
        let metadata = Reader::valid(at, Metadata::new(self.bytes("metadata", Metadata::BYTES_MAX)?))?;
        if format <= FORMAT_2 {
            Reader::valid(at, metadata.check_plain())?;
        }
        Ok(metadata)
    }
}

macro_rules! numbers {
    ($($method:ident, $type:ident, $number:ident, $read:expr;)*) => {
        /// Numbers are varints.
        impl Writer<'_> {
            $(#[inline]
            pub(crate) fn $method(&mut self, value: $type) {
                self.varint(value.$number());
            })*
        }

        impl Reader<'_> {
            $(#[inline]
            pub(crate) fn $method(&mut self) -> Result<$type, DecodeError> {
                let at = self.at();
                let read: fn(u64) -> Result<$type, Invalid> = $read;
                Reader::valid(at, read(self.varint()?))
            })*
        }
    };
}

numbers! {
    lease_id, LeaseId, get, LeaseId::new;
    token, Token, get, Token::new;
    revision, Revision, get, Revision::new;
    seq, Seq, get, Seq::new;
    log_time, LogTime, ms, |ms| Ok(LogTime::from_ms(ms));
    wall_time, WallTime, unix_ms, |ms| Ok(WallTime::from_unix_ms(ms));
    duration, DurationMs, ms, |ms| Ok(DurationMs::from_ms(ms));
}

impl Writer<'_> {
    /// Writes a token; 0 for none, which is no grant's token.
    pub(crate) fn token_option(&mut self, token: Option<Token>) {
        self.varint(token.map_or(0, Token::get));
    }

    /// Writes a lease id; 0 for none, which is no lease's id.
    #[inline]
    pub(crate) fn lease_id_option(&mut self, lease: Option<LeaseId>) {
        self.varint(lease.map_or(0, LeaseId::get));
    }

    pub(crate) fn group_id(&mut self, group: GroupId) {
        self.varint(u64::from(group.number()));
    }

    /// Writes eight bytes, lowest first: for hashes and random numbers, which varints would make longer.
    pub(crate) fn fixed_u64(&mut self, number: u64) {
        number.to_le_bytes().into_iter().for_each(|byte| self.u8(byte));
    }

    pub(crate) fn slot(&mut self, slot: Slot) {
        self.varint(u64::from(slot.number()));
    }

    /// Writes a group map: its epoch, the number of its ranges, then the first slot and the group of each.
    pub(crate) fn group_map(&mut self, map: &GroupMap) {
        self.varint(map.epoch());
        let ranges: Vec<_> = map.ranges().map(|range| (range.first, range.group)).collect();
        self.list("ranges of slots", usize::from(SLOTS), &ranges, |writer, (first, group)| {
            writer.slot(*first);
            writer.group_id(*group);
        });
    }

    /// Writes the number of names, then each. Panics on `Names::Many` that [`Names::new`] did not make.
    #[inline]
    pub(crate) fn names(&mut self, names: &Names) {
        match names {
            Names::One(name) => {
                self.u8(1);
                self.name(name);
            }
            Names::Many(many) => {
                let canonical = many.len() >= 2 && many.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(canonical, "several names are sorted and each there once: {many:?}");
                self.list("names", NAMES_MAX, many, Writer::name);
            }
        }
    }

    /// Writes one byte, followed by `n` and `of` for permits. Panics on permits that [`Mode::permit`] would refuse.
    #[inline]
    pub(crate) fn mode(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.u8(0),
            Mode::Shared => self.u8(1),
            Mode::IntentShared => self.u8(2),
            Mode::IntentExclusive => self.u8(3),
            Mode::SharedIntentExclusive => self.u8(4),
            Mode::Permit { n, of } => {
                assert!(1 <= n && n <= of && of <= Mode::PERMITS_MAX, "no such permits: {mode}");
                self.u8(5);
                self.varint(u64::from(n));
                self.varint(u64::from(of));
            }
        }
    }

    /// Writes the seq ranges of a request. Panics if there are more than [`SEQ_RANGES_MAX`].
    #[inline]
    pub(crate) fn seq_ranges(&mut self, seqs: &SeqRanges) {
        self.seq_ranges_max(seqs, SEQ_RANGES_MAX);
    }

    /// Like [`Writer::seq_ranges`], for a set that grew range by range.
    pub(crate) fn seq_ranges_unbounded(&mut self, seqs: &SeqRanges) {
        self.seq_ranges_max(seqs, usize::MAX);
    }

    /// Writes the number of ranges, then for each the distance from the least seq at which it could begin to its first
    /// seq, and the number of its seqs after the first. So any numbers decode to sorted ranges with gaps.
    fn seq_ranges_max(&mut self, seqs: &SeqRanges, max: usize) {
        let mut from_min = 1;
        self.list("seq ranges", max, seqs.ranges(), |writer, &(from, to)| {
            writer.varint(from - from_min);
            writer.varint(to - from);
            from_min = to + 2;
        });
    }

    /// Writes the number of limits, then each in the order of [`Limit::ALL`].
    pub(crate) fn limits(&mut self, limits: &Limits) {
        self.list("limits", LIMITS_COUNT, Limit::ALL, |writer, &limit| writer.varint(limits.get(limit)));
    }
}

impl Reader<'_> {
    pub(crate) fn fixed_u64(&mut self) -> Result<u64, DecodeError> {
        let mut bytes = [0; 8];
        for byte in &mut bytes {
            *byte = self.u8()?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads a lineage that exists: 0 stands for none.
    pub(crate) fn lineage(&mut self) -> Result<Lineage, DecodeError> {
        let (what, at) = ("lineage", self.at());
        Lineage::new(self.fixed_u64()?).ok_or(DecodeError::Invalid { at, source: Invalid::Empty { what } })
    }

    /// Reads a token; 0 stands for none, which is no grant's token.
    pub(crate) fn token_option(&mut self) -> Result<Option<Token>, DecodeError> {
        let at = self.at();
        match self.varint()? {
            0 => Ok(None),
            number => Reader::valid(at, Token::new(number)).map(Some),
        }
    }

    /// Reads a lease id or none, as [`Writer::lease_id_option`] wrote it.
    #[inline]
    pub(crate) fn lease_id_option(&mut self) -> Result<Option<LeaseId>, DecodeError> {
        let at = self.at();
        match self.varint()? {
            0 => Ok(None),
            id => Reader::valid(at, LeaseId::new(id).map(Some)),
        }
    }

    pub(crate) fn group_id(&mut self) -> Result<GroupId, DecodeError> {
        self.u32("group").map(GroupId::new)
    }

    pub(crate) fn slot(&mut self) -> Result<Slot, DecodeError> {
        let at = self.at();
        let value = self.varint()?;
        let max = u64::from(SLOTS) - 1;
        let slot = u16::try_from(value).map_err(|_| Invalid::OutOfRange { what: "slot", value, min: 0, max });
        Reader::valid(at, slot.and_then(Slot::new))
    }

    /// Reads a group map; [`GroupMap::new`] refuses ranges that no map can have.
    pub(crate) fn group_map(&mut self) -> Result<GroupMap, DecodeError> {
        let at = self.at();
        let epoch = self.varint()?;
        let ranges = self.list("ranges of slots", usize::from(SLOTS), 2, |reader| {
            Ok((reader.slot()?, reader.group_id()?))
        })?;
        Reader::valid(at, GroupMap::new(epoch, ranges))
    }

    /// Reads names that are sorted and each there once: [`Names::new`] alone would take them in any order.
    pub(crate) fn names(&mut self) -> Result<Names, DecodeError> {
        let at = self.at();
        let count = self.count("names", NAMES_MAX, 2)?;
        if count == 1 {
            return self.name().map(Names::One);
        }
        let mut names: Vec<Name> = Vec::with_capacity(count);
        for _ in 0..count {
            let at = self.at();
            let name = self.name()?;
            if names.last().is_some_and(|last| name < *last) {
                return Err(DecodeError::Unsorted { what: "names", at });
            }
            names.push(name);
        }
        Reader::valid(at, Names::new(names))
    }

    #[inline]
    pub(crate) fn mode(&mut self) -> Result<Mode, DecodeError> {
        let at = self.at();
        match self.u8()? {
            0 => Ok(Mode::Exclusive),
            1 => Ok(Mode::Shared),
            2 => Ok(Mode::IntentShared),
            3 => Ok(Mode::IntentExclusive),
            4 => Ok(Mode::SharedIntentExclusive),
            5 => {
                let (n, of) = (self.u32("permits asked for")?, self.u32("permits of the semaphore")?);
                Reader::valid(at, Mode::permit(n, of))
            }
            tag => Err(DecodeError::UnknownTag { what: "mode", tag, at }),
        }
    }

    /// Reads at most [`SEQ_RANGES_MAX`] ranges, as a request carries them.
    pub(crate) fn seq_ranges(&mut self) -> Result<SeqRanges, DecodeError> {
        self.seq_ranges_max(SEQ_RANGES_MAX)
    }

    /// Reads any number of ranges.
    pub(crate) fn seq_ranges_unbounded(&mut self) -> Result<SeqRanges, DecodeError> {
        self.seq_ranges_max(usize::MAX)
    }

    fn seq_ranges_max(&mut self, max: usize) -> Result<SeqRanges, DecodeError> {
        let (mut ranges, mut from_min) = (SeqRanges::default(), 1);
        for _ in 0..self.count("seq ranges", max, 2)? {
            let at = self.at();
            // A sum that saturates is not a valid seq, and is refused below.
            let from = self.varint()?.saturating_add(from_min);
            let to = self.varint()?.saturating_add(from);
            Reader::valid(at, ranges.append(from, to))?;
            from_min = to + 2;
        }
        Ok(ranges)
    }

    /// Reads limits with any values. [`Limits::validate`] decides whether a group can have them, and in a command its
    /// rejection is an answer, not an error.
    pub(crate) fn limits(&mut self) -> Result<Limits, DecodeError> {
        let at = self.at();
        let count = self.count("limits", LIMITS_COUNT, 1)?;
        if count != LIMITS_COUNT {
            let (value, exact) = (count as u64, LIMITS_COUNT as u64);
            let source = Invalid::OutOfRange { what: "number of limits", value, min: exact, max: exact };
            return Err(DecodeError::Invalid { at, source });
        }
        let mut limits = Limits::DEFAULT;
        for &limit in Limit::ALL {
            limits.set(limit, self.varint()?);
        }
        Ok(limits)
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

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn names_in_another_order_are_refused() {
        let names = Names::new(vec![name("b"), name("a")]).unwrap();
        assert_eq!(written(|w| w.names(&names)), b"\x02\x01a\x01b");
        assert_eq!(Reader::new(b"\x02\x01a\x01b").names(), Ok(names));
        assert_eq!(Reader::new(b"\x01\x01a").names(), Ok(Names::One(name("a"))));
        let unsorted = DecodeError::Unsorted { what: "names", at: 3 };
        assert_eq!(Reader::new(b"\x02\x01b\x01a").names(), Err(unsorted));
        let twice = Invalid::Twice { what: "names", element: "a".into() };
        assert_eq!(
            Reader::new(b"\x02\x01a\x01a").names(),
            Err(DecodeError::Invalid { at: 0, source: twice })
        );
        let empty = DecodeError::Invalid { at: 0, source: Invalid::Empty { what: "names" } };
        assert_eq!(Reader::new(b"\x00").names(), Err(empty));
    }

    #[test]
    #[should_panic(expected = "several names are sorted")]
    fn names_that_nobody_sorted_are_not_written() {
        written(|w| w.names(&Names::Many([name("b"), name("a")].into())));
    }

    #[test]
    #[should_panic(expected = "no such permits")]
    fn permits_that_nobody_checked_are_not_written() {
        written(|w| w.mode(Mode::Permit { n: 2, of: 1 }));
    }

    #[test]
    fn every_mode_has_its_own_byte() {
        let mut first = Vec::new();
        for mode in Mode::PLAIN.into_iter().chain([Mode::permit(3, 1_000).unwrap()]) {
            let bytes = written(|w| w.mode(mode));
            assert_eq!(Reader::new(&bytes).mode(), Ok(mode));
            assert!(!first.contains(&bytes[0]));
            first.push(bytes[0]);
        }
        assert_eq!(Reader::new(&[6]).mode(), Err(DecodeError::UnknownTag { what: "mode", tag: 6, at: 0 }));
    }

    #[test]
    fn seq_ranges_are_coded_by_their_distances() {
        let seqs = SeqRanges::new(vec![(1, 4), (6, 6), (300, 310)]).unwrap();
        // 1..=4 begins as early as it could and has 3 after its first; 6 is the next that does not touch; 300 - 8 =
        // 292.
        let bytes = [3, 0, 3, 0, 0, 0xa4, 2, 10];
        assert_eq!(written(|w| w.seq_ranges(&seqs)), bytes);
        assert_eq!(Reader::new(&bytes).seq_ranges(), Ok(seqs));
        let last = tollgate_types::REVISION_END - 1;
        for (from, to) in [(1, last), (last, last)] {
            let seqs = SeqRanges::new(vec![(from, to)]).unwrap();
            assert_eq!(Reader::new(&written(|w| w.seq_ranges(&seqs))).seq_ranges(), Ok(seqs));
        }
        let past_the_end = written(|w| {
            w.u8(1);
            w.varint(u64::MAX);
            w.varint(u64::MAX);
        });
        assert!(matches!(Reader::new(&past_the_end).seq_ranges(), Err(DecodeError::Invalid { at: 1, .. })));
    }

    #[test]
    fn only_a_set_that_grew_may_have_more_ranges_than_a_request() {
        let ranges = |count: u64| SeqRanges::from_sorted((1..=count).map(|i| (i * 3, i * 3 + 1))).unwrap();
        for count in [0, 1, 64, 65, 1_000] {
            let seqs = ranges(count);
            let bytes = written(|w| w.seq_ranges_unbounded(&seqs));
            assert_eq!(Reader::new(&bytes).seq_ranges_unbounded(), Ok(seqs.clone()));
            match Reader::new(&bytes).seq_ranges() {
                Ok(read) => assert_eq!((read, true), (seqs, count <= 64)),
                Err(error) => {
                    assert_eq!(
                        error,
                        DecodeError::TooLong { what: "seq ranges", len: count, max: 64, at: 0 }
                    );
                }
            }
        }
    }

    #[test]
    fn no_lease_is_zero() {
        let lease = LeaseId::new(300).unwrap();
        for (option, bytes) in [(None, vec![0]), (Some(lease), vec![0xac, 2])] {
            assert_eq!(written(|w| w.lease_id_option(option)), bytes);
            assert_eq!(Reader::new(&bytes).lease_id_option(), Ok(option));
        }
        assert!(matches!(Reader::new(&[0]).lease_id(), Err(DecodeError::Invalid { at: 0, .. })));
    }

    #[test]
    fn limits_are_all_there_or_refused() {
        let limits = Limits { ttl_ms_min: 7, deadlock_visits_max: u64::MAX, ..Limits::DEFAULT };
        let bytes = written(|w| w.limits(&limits));
        assert_eq!(Reader::new(&bytes).limits(), Ok(limits));
        let mut fewer = bytes.clone();
        fewer[0] -= 1;
        let count = Invalid::OutOfRange { what: "number of limits", value: 21, min: 22, max: 22 };
        assert_eq!(Reader::new(&fewer).limits(), Err(DecodeError::Invalid { at: 0, source: count }));
    }

    #[test]
    fn a_slot_is_below_the_number_of_slots() {
        let last = Slot::new(SLOTS - 1).unwrap();
        assert_eq!(Reader::new(&written(|w| w.slot(last))).slot(), Ok(last));
        for number in [u64::from(SLOTS), u64::MAX] {
            let bytes = written(|w| w.varint(number));
            assert!(matches!(Reader::new(&bytes).slot(), Err(DecodeError::Invalid { at: 0, .. })));
        }
    }
}
