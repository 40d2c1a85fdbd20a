//! "After a restore" of the page.

use super::Oracle;
use tollgate_types::{DurationMs, Names, Revision};

impl Oracle {
    /// Goes on above a revision that is not below the present one.
    pub(crate) fn resume(&mut self, above: u64, grace: DurationMs) {
        self.revision = Revision::new(above).expect("below 2^53");
        self.ring_start = self.events.len();
        self.closed_until = self.now.after(grace);
        for lease in self.leases.iter_mut().filter(|lease| lease.deadline > self.now) {
            lease.deadline = self.now;
            lease.revoked = None;
        }
    }

    /// Closes each of these names by itself as well while all are closed, because a wait for them begins.
    pub(super) fn close_with_all(&mut self, names: &Names) {
        if self.closed_until > self.now {
            for name in names.as_slice() {
                let was = self.closures.get(name).copied().unwrap_or(self.closed_until);
                self.closures.insert(name.clone(), was.max(self.closed_until));
            }
        }
    }
}
