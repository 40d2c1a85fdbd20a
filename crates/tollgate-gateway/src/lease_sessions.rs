//! Counts the sessions of this node that keep each lease alive: the last session to go may end the lease.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use tollgate_types::{Address, LeaseId};

/// Keepalive sessions by lease. A lease without sessions takes no memory.
#[derive(Debug, Default)]
pub struct LeaseSessions(Mutex<HashMap<LeaseId, Kept>>);

#[derive(Debug)]
struct Kept {
    sessions: u32,
    /// Client address of the session that kept the lease alive last.
    last: Address,
}

impl LeaseSessions {
    /// Adds a session, from address `from`, that keeps the lease alive.
    pub fn add(&self, lease: LeaseId, from: &Address) {
        let mut all = self.lock();
        let kept = all.entry(lease).or_insert_with(|| Kept { sessions: 0, last: Address::NONE });
        kept.sessions += 1;
        kept.last = from.clone();
    }

    /// Notes that the session from address `from` has kept the lease alive again.
    pub fn kept(&self, lease: LeaseId, from: &Address) {
        if let Some(kept) = self.lock().get_mut(&lease).filter(|kept| kept.last != *from) {
            kept.last = from.clone();
        }
    }

    /// Removes a session. If it was the lease's last one, returns the address from which the lease was kept alive last.
    pub fn remove(&self, lease: LeaseId) -> Option<Address> {
        let mut all = self.lock();
        let kept = all.get_mut(&lease)?;
        kept.sessions -= 1;
        let over = kept.sessions == 0;
        over.then(|| all.remove(&lease).map(|kept| kept.last)).flatten()
    }

    /// Returns true if any session keeps the lease alive.
    pub fn any(&self, lease: LeaseId) -> bool {
        self.lock().contains_key(&lease)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Kept>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_told_who_kept_it_last() {
        let (lease_sessions, lease) = (LeaseSessions::default(), LeaseId::new(7).unwrap());
        let [one, two] = ["h:1", "h:2"].map(|address| Address::new(address).unwrap());
        lease_sessions.add(lease, &one);
        lease_sessions.add(lease, &two);
        lease_sessions.kept(lease, &one);
        assert_eq!(lease_sessions.remove(lease), None);
        assert!(lease_sessions.any(lease));
        assert_eq!(lease_sessions.remove(lease), Some(one));
        assert!(lease_sessions.lock().is_empty() && !lease_sessions.any(lease));
    }
}
