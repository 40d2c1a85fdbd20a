//! Named owners: threads of control inside a session.
//!
//! An owner that holds a lock may acquire it again: its guards share one grant, and only the last guard releases the
//! lock. Invariant: for one owner and lock, one request is in progress at a time, releases included, so that no release
//! meets an acquire that came after it. Not here: the requests (`acquire`), the shared grant (`grant`).

use crate::acquire::Acquire;
use crate::error::Error;
use crate::grant::{Grant, Hold};
use crate::session::{Core, Session};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tollgate_types::{Owner, Seq};

/// Owner, a thread of control inside a session, from [`Session::owner`]. Cheap to clone.
///
/// ```no_run
/// # async fn example(session: tollgate_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// let worker = session.owner("worker-1");
/// let outer = worker.lock("accounts/7").acquire().await?;
/// let inner = worker.lock("accounts/7").acquire().await?; // the same grant, counted
/// assert_eq!(outer.token()?, inner.token()?);
/// drop(outer); // still held
/// inner.release().await?; // released
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OwnerHandle {
    session: Session,
    name: String,
}

impl OwnerHandle {
    pub(crate) fn new(session: Session, name: String) -> OwnerHandle {
        OwnerHandle { session, name }
    }

    /// Returns the owner's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a request for a lock, which the owner may hold already. A request for a stronger mode than the held one
    /// is an upgrade, for all guards.
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self.session.clone(), vec![name.into()], Some(self.name.clone()))
    }

    /// Returns a request for several locks, all together or none. If the owner holds some of them already, it must hold
    /// all of them by one request for the same names.
    pub fn locks<I, S>(&self, names: I) -> Acquire
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let names = names.into_iter().map(Into::into).collect();
        Acquire::new(self.session.clone(), names, Some(self.name.clone()))
    }
}

/// First character of owner names that are made for one acquire. No other owner's name may begin with it, or that owner
/// would share their locks.
const GENERATED: char = '~';

/// Returns the name of an owner for one acquire alone, made from the number of its request.
pub(crate) fn generated(seq: Seq) -> String {
    format!("{GENERATED}{:x}", seq.get())
}

/// Checks an owner name that a program gave. In a session that `joined` another session's lease, the name may be one
/// that was generated there.
pub(crate) fn check(name: &str, joined: bool) -> Result<(), Error> {
    Owner::new(name).map_err(|invalid| Error::invalid("owner", invalid))?;
    if name.is_empty() {
        return Err(Error::invalid("owner", "it has no name: give it one, or leave the owner out"));
    }
    if !joined && name.starts_with(GENERATED) {
        let says = "names of owners that begin with ~ are made by the client: choose another";
        return Err(Error::invalid("owner", says));
    }
    Ok(())
}

/// Key of a place: owner and names.
type Key = (String, Vec<String>);

/// Locks of the named owners of a session.
#[derive(Default)]
pub(crate) struct Owners {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    places: BTreeMap<Key, (u64, Place)>,
    turns: u64,
}

enum Place {
    /// A request is in progress.
    Busy,
    Held(Weak<Grant>),
}

/// Start of an acquire of a named owner.
pub(crate) enum Begun {
    /// The owner holds the lock already.
    Held(Hold),
    /// The owner has to request the lock.
    Asks(Turn),
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Waits until no other request is in progress for this owner and names. The names must be in order.
    pub(crate) async fn begin(core: &Arc<Core>, owner: &str, names: &[String]) -> Begun {
        let key = (owner.to_owned(), names.to_vec());
        loop {
            let changed = core.owners.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(begun) = Owners::try_begin(core, &key) {
                return begun;
            }
            changed.await;
        }
    }

    /// Starts an acquire; none if another request is in progress.
    fn try_begin(core: &Arc<Core>, key: &Key) -> Option<Begun> {
        loop {
            let (seen, held) = match core.owners.lock().places.get(key) {
                Some((_, Place::Busy)) => return None,
                Some((turn, Place::Held(grant))) => (Some(*turn), Some(grant.clone())),
                None => (None, None),
            };
            // The grant is examined without the lock, because a grant that ends here takes the lock.
            match held.as_ref().map(Weak::upgrade) {
                Some(Some(grant)) => match grant.enter() {
                    Some(again) => return Some(Begun::Held(again)),
                    // The release of the grant, or of what remains of it, comes first.
                    None if grant.clear() => return None,
                    // The grant is lost: a new one may be requested while guards of the old one still exist.
                    None => {}
                },
                // The grant is being dropped, and its place with it.
                Some(None) => return None,
                None => {}
            }
            let mut inner = core.owners.lock();
            if inner.places.get(key).map(|known| known.0) != seen {
                continue;
            }
            inner.turns += 1;
            let turn = inner.turns;
            inner.places.insert(key.clone(), (turn, Place::Busy));
            let (core, key) = (Arc::clone(core), key.clone());
            return Some(Begun::Asks(Turn { inner: Arc::new(TurnInner { core, key, turn }) }));
        }
    }
}

/// Right to make a request for one lock as one owner. The next request begins when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Turn {
    inner: Arc<TurnInner>,
}

struct TurnInner {
    core: Arc<Core>,
    key: Key,
    turn: u64,
}

impl Turn {
    /// Records that the lock was granted.
    pub(crate) fn held(&self, grant: Weak<Grant>) {
        self.set(Place::Held(grant));
    }

    /// Records that the lock is being released.
    pub(crate) fn busy(&self) {
        self.set(Place::Busy);
    }

    fn set(&self, place: Place) {
        let TurnInner { core, key, turn } = &*self.inner;
        if let Some(known) = core.owners.lock().places.get_mut(key).filter(|known| known.0 == *turn) {
            known.1 = place;
        }
        core.owners.changed.notify_waiters();
    }
}

impl Drop for TurnInner {
    fn drop(&mut self) {
        let mut inner = self.core.owners.lock();
        if inner.places.get(&self.key).is_some_and(|known| known.0 == self.turn) {
            inner.places.remove(&self.key);
        }
        drop(inner);
        self.core.owners.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_no_owner_may_be_named_like_one_that_is_made_for_an_acquire() {
        for number in [1, 10, 0xbeef, (1 << 52) - 1] {
            let made = generated(Seq::new(number).unwrap());
            Owner::new(&made).expect("the cluster takes it");
            assert!(check(&made, false).is_err(), "{made}");
            assert!(check(&made, true).is_ok(), "a session that shares the lease goes on with it");
            assert!(check(&format!("{number:x}"), false).is_ok());
        }
        assert!(check("", true).is_err());
    }
}
