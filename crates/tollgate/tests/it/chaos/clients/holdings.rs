//! Locks that holders believe they hold at this moment: mutual exclusion is the purpose of a lock (P1 and P7 together).
//!
//! Holders and clock are in one process, so a look at all of them is a look at one moment. Invariant: a holder that
//! enters believes at that moment, and must be compatible with every holder that is inside and believes too. Not here:
//! overlaps that histories show (`tollgate-check`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use tollgate_client::Session;
use tollgate_types::{Mode, Name, Token};

/// All holders that are inside, by lock.
#[derive(Default)]
pub(crate) struct Holdings {
    inside: Mutex<BTreeMap<Name, Vec<Inside>>>,
    overlaps: Mutex<Vec<String>>,
}

struct Inside {
    session: Session,
    token: Token,
    mode: Mode,
}

impl Holdings {
    /// Records a holder that believes in its grant and enters, or changes its mode.
    pub(crate) fn enter(&self, names: &[Name], session: &Session, token: Token, mode: Mode) {
        let mut inside = self.inside.lock();
        for name in names {
            let there = inside.entry(name.clone()).or_default();
            there.retain(|other| other.token != token && other.session.check().is_ok());
            there.push(Inside { session: session.clone(), token, mode });
            // A holder that loses its belief during this check does not count.
            let held = || there.iter().filter(|each| each.session.check().is_ok());
            if session.check().is_ok() && !go_together(held().map(|each| each.mode)) {
                let all: Vec<String> = held()
                    .map(|each| format!("{} {} ({:?})", each.session.lease_id(), each.token, each.mode))
                    .collect();
                let says = format!("P1: {name} is believed to be held by {} at once", all.join(" and by "));
                self.overlaps.lock().push(says);
            }
        }
    }

    /// Records that a holder leaves, before it releases its locks.
    pub(crate) fn leave(&self, names: &[Name], token: Token) {
        let mut inside = self.inside.lock();
        for name in names {
            if let Some(there) = inside.get_mut(name) {
                there.retain(|each| each.token != token);
            }
        }
    }

    /// Returns all conflicts between holders that were inside at the same time.
    pub(crate) fn overlaps(&self) -> Vec<String> {
        self.overlaps.lock().clone()
    }
}

fn go_together(modes: impl Iterator<Item = Mode>) -> bool {
    let (mut exclusive, mut shared, mut permits, mut of) = (0, 0, 0, u32::MAX);
    for mode in modes {
        match mode {
            Mode::Exclusive => exclusive += 1,
            Mode::Permit { n, of: all } => (permits, of) = (permits + n, all),
            _ => shared += 1,
        }
    }
    permits <= of && (exclusive == 0 || exclusive + shared == 1)
}

#[test]
fn p1_two_writers_a_writer_with_a_reader_and_too_many_permits_do_not_go_together() {
    use Mode::{Exclusive, Shared};
    let permit = |n| Mode::Permit { n, of: 3 };
    assert!(go_together([Shared, Shared].into_iter()) && go_together([Exclusive].into_iter()));
    assert!(go_together([permit(1), permit(2)].into_iter()));
    assert!(!go_together([Exclusive, Exclusive].into_iter()));
    assert!(!go_together([Exclusive, Shared].into_iter()));
    assert!(!go_together([permit(2), permit(2)].into_iter()));
}
