//! Stores that clients write to under a lock, each write with its fencing token.
//!
//! Invariant (P3): a store never accepts an exclusive token below the highest exclusive one that it accepted, nor, if
//! strict, an equal one; nor a shared or permit token below that. Shared and permit tokens raise nothing. Every answer
//! goes into the history, so that the checker can verify it. Not here: the holders of the tokens (`client`).

use crate::types::At;
use std::collections::BTreeMap;
use tollgate_check::{Event, FenceMode, History};
use tollgate_types::{Mode, Name, Token};

/// Number of stores. Those with an odd number are strict: they accept each exclusive token only once.
pub const STORES: u32 = 2;

/// All stores of a world. They never fail and answer at once.
#[derive(Debug, Default)]
pub struct FencedStores {
    /// The highest exclusive token that each store accepted for each lock.
    highest: BTreeMap<(u32, Name), Token>,
}

impl FencedStores {
    /// Creates stores that nobody has written to.
    pub fn new() -> FencedStores {
        FencedStores::default()
    }

    /// Writes to what the lock guards; returns true if the store accepted the write.
    pub fn write(&mut self, write: &FencedWrite<'_>, at: At, history: &mut History) -> bool {
        let FencedWrite { store, name, token, mode } = *write;
        let strict = is_strict(store);
        let highest = self.highest.get(&(store, name.clone())).copied();
        let exclusive = mode == FenceMode::Exclusive;
        let accepted = match highest {
            None => true,
            Some(highest) if strict && exclusive => token > highest,
            Some(highest) => token >= highest,
        };
        if accepted && exclusive {
            self.highest.insert((store, name.clone()), token);
        }
        let event = Event::FencedWrite { store, name: name.clone(), token, mode, strict, accepted };
        history.record(tollgate_check::At::from_us(at), event);
        accepted
    }
}

/// One write to a store.
#[derive(Debug, Clone, Copy)]
pub struct FencedWrite<'a> {
    /// The store, by its number below [`STORES`].
    pub store: u32,
    /// Lock that guards what is written.
    pub name: &'a Name,
    /// The writer's token.
    pub token: Token,
    /// Mode of the writer's grant.
    pub mode: FenceMode,
}

/// Returns true if the store accepts each exclusive token only once.
pub(crate) fn is_strict(store: u32) -> bool {
    store % 2 == 1
}

/// Returns the mode that travels with the token of a grant; none if such a grant gives no right to write.
pub(crate) fn fence_mode(mode: Mode) -> Option<FenceMode> {
    match mode {
        Mode::Exclusive => Some(FenceMode::Exclusive),
        Mode::Shared => Some(FenceMode::Shared),
        Mode::Permit { .. } => Some(FenceMode::Permit),
        Mode::IntentShared | Mode::IntentExclusive | Mode::SharedIntentExclusive => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FenceMode::{Exclusive, Permit, Shared};
    use tollgate_check::Settings;

    #[test]
    fn a_store_takes_no_token_below_the_highest_exclusive_one_and_the_judge_agrees() {
        let mut stores = FencedStores::new();
        let mut history = History::new(Settings::with_rho_ppm(10_000));
        let name = Name::new("jobs").unwrap();
        let writes = [
            (0, 5, Exclusive, true),
            (0, 5, Exclusive, true),
            (0, 9, Shared, true),
            (0, 6, Permit, true),
            (0, 4, Shared, false),
            (0, 4, Exclusive, false),
            (0, 7, Exclusive, true),
            (1, 5, Exclusive, true),
            (1, 5, Exclusive, false),
            (1, 5, Shared, true),
        ];
        for (at, (store, token, mode, takes)) in (0..).zip(writes) {
            let write = FencedWrite { store, name: &name, token: Token::new(token).unwrap(), mode };
            assert_eq!(stores.write(&write, at, &mut history), takes, "{write:?}");
        }
        assert!(history.judge().is_clean());
    }
}
