//! Which leases this node's sessions keep alive: the last session that goes may end them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use tollgate_types::{Address, LeaseId};

/// By lease. What nobody keeps takes no room.
#[derive(Debug, Default)]
pub struct Keepers(Mutex<HashMap<LeaseId, Kept>>);

#[derive(Debug)]
struct Kept {
    sessions: u32,
    /// Where the session came from that kept it alive last.
    last: Address,
}

impl Keepers {
    /// One session more, which comes from there.
    pub fn add(&self, lease: LeaseId, from: &Address) {
        let mut all = self.lock();
        let kept = all.entry(lease).or_insert_with(|| Kept { sessions: 0, last: Address::NONE });
        kept.sessions += 1;
        kept.last = from.clone();
    }

    /// One of them has kept it alive again.
    pub fn kept(&self, lease: LeaseId, from: &Address) {
        if let Some(kept) = self.lock().get_mut(&lease).filter(|kept| kept.last != *from) {
            kept.last = from.clone();
        }
    }

    /// One less. If it was the last one: from where the lease was kept alive last.
    pub fn remove(&self, lease: LeaseId) -> Option<Address> {
        let mut all = self.lock();
        let kept = all.get_mut(&lease)?;
        kept.sessions -= 1;
        let over = kept.sessions == 0;
        over.then(|| all.remove(&lease).map(|kept| kept.last)).flatten()
    }

    /// Whether there is anybody.
    pub fn any(&self, lease: LeaseId) -> bool {
        self.lock().contains_key(&lease)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Kept>> {
        self.0.lock().expect("nobody panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_told_who_kept_it_last() {
        let (keepers, lease) = (Keepers::default(), LeaseId::new(7).unwrap());
        let [one, two] = ["h:1", "h:2"].map(|address| Address::new(address).unwrap());
        keepers.add(lease, &one);
        keepers.add(lease, &two);
        keepers.kept(lease, &one);
        assert_eq!(keepers.remove(lease), None);
        assert!(keepers.any(lease));
        assert_eq!(keepers.remove(lease), Some(one));
        assert!(keepers.lock().is_empty() && !keepers.any(lease));
    }
}
