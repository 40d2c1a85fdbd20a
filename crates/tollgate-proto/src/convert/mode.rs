//! Lock modes on the wire: an enum, and two numbers for semaphores.

use crate::bad_field::BadField;
use crate::convert::choice::known;
use crate::v1;
use tollgate_types::Mode;

/// Mode of a lock as messages carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeFields {
    /// Value of the field `mode`, or of a similar field.
    pub mode: v1::Mode,
    /// Value of the field `permits`; 0 unless the mode is `Permit`.
    pub permits: u32,
    /// Value of the field `of`; 0 unless the mode is `Permit`.
    pub of: u32,
}

/// Reads a mode from the fields `mode`, `permits` and `of`. All unset is exclusive; `of` alone is one permit.
pub fn read_mode(mode: i32, permits: u32, of: u32) -> Result<Mode, BadField> {
    let plain = match known::<v1::Mode>("mode", mode)? {
        v1::Mode::Unspecified if permits == 0 && of == 0 => Mode::Exclusive,
        v1::Mode::Unspecified | v1::Mode::Permit => return read_permits(permits, of),
        v1::Mode::Exclusive => Mode::Exclusive,
        v1::Mode::Shared => Mode::Shared,
        v1::Mode::IntentShared => Mode::IntentShared,
        v1::Mode::IntentExclusive => Mode::IntentExclusive,
        v1::Mode::SharedIntentExclusive => Mode::SharedIntentExclusive,
    };
    for (field, number) in [("permits", permits), ("of", of)] {
        if number != 0 {
            let says =
                format!("a lock in mode {plain} has no permits: leave it 0, or set mode to MODE_PERMIT");
            return Err(BadField::new(field, says));
        }
    }
    Ok(plain)
}

fn read_permits(permits: u32, of: u32) -> Result<Mode, BadField> {
    if of == 0 {
        return Err(BadField::new("of", "permits need it: set it to the number that the semaphore has"));
    }
    let field = if of > Mode::PERMITS_MAX { "of" } else { "permits" };
    Mode::permit(permits.max(1), of).map_err(BadField::invalid(field))
}

/// Returns the three fields of a mode.
pub const fn write_mode(mode: Mode) -> ModeFields {
    let plain = match mode {
        Mode::Exclusive => v1::Mode::Exclusive,
        Mode::Shared => v1::Mode::Shared,
        Mode::IntentShared => v1::Mode::IntentShared,
        Mode::IntentExclusive => v1::Mode::IntentExclusive,
        Mode::SharedIntentExclusive => v1::Mode::SharedIntentExclusive,
        Mode::Permit { n, of } => return ModeFields { mode: v1::Mode::Permit, permits: n, of },
    };
    ModeFields { mode: plain, permits: 0, of: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mode: v1::Mode, permits: u32, of: u32) -> Result<Mode, BadField> {
        read_mode(mode.into(), permits, of)
    }

    #[test]
    fn every_mode_survives_the_wire() {
        for mode in Mode::PLAIN.into_iter().chain([Mode::permit(2, 5).unwrap()]) {
            let ModeFields { mode: wire, permits, of } = write_mode(mode);
            assert_eq!(read(wire, permits, of), Ok(mode));
        }
    }

    #[test]
    fn an_unset_mode_is_exclusive_or_permits() {
        assert_eq!(read(v1::Mode::Unspecified, 0, 0), Ok(Mode::Exclusive));
        assert_eq!(read(v1::Mode::Unspecified, 2, 3), Ok(Mode::Permit { n: 2, of: 3 }));
        assert_eq!(read(v1::Mode::Unspecified, 0, 3), Ok(Mode::Permit { n: 1, of: 3 }));
        assert_eq!(read(v1::Mode::Permit, 0, 3), Ok(Mode::Permit { n: 1, of: 3 }));
    }

    #[test]
    fn an_unknown_mode_number_is_refused() {
        let wrong = read_mode(99, 0, 0).unwrap_err();
        assert_eq!(wrong.to_string(), "bad field mode: 99 is no value of it that this server knows");
        assert!(read_mode(-1, 0, 0).is_err());
    }

    #[test]
    fn permits_without_of_are_refused() {
        assert_eq!(read(v1::Mode::Unspecified, 2, 0).unwrap_err().field, "of");
        assert_eq!(read(v1::Mode::Permit, 0, 0).unwrap_err().field, "of");
    }

    #[test]
    fn more_permits_than_there_are_or_can_be_are_refused() {
        assert_eq!(read(v1::Mode::Permit, 4, 3).unwrap_err().field, "permits");
        assert_eq!(read(v1::Mode::Permit, 1, Mode::PERMITS_MAX + 1).unwrap_err().field, "of");
    }

    #[test]
    fn a_plain_mode_takes_no_permits() {
        let wrong = read(v1::Mode::Shared, 1, 3).unwrap_err();
        assert_eq!(wrong.field, "permits");
        assert!(wrong.says.contains("mode shared has no permits"));
        assert_eq!(read(v1::Mode::Exclusive, 0, 3).unwrap_err().field, "of");
    }
}
