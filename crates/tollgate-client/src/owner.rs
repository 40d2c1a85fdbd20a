//! Named owners: threads of control inside a session.
//!
//! An owner that holds a lock may take it again: its guards share one grant, and only the last of them gives it back.
//! Invariant: of one owner and lock, one request is under way at a time, releases included, so that no release meets an
//! acquire that came after it. Not here: the requests (`acquire`), what is shared (`grant`).

use crate::acquire::Acquire;
use crate::error::Error;
use crate::grant::{Grant, Hold};
use crate::session::{Core, Session};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tokio::sync::Notify;
use tollgate_types::{Owner, Seq};

/// A thread of control inside a session, from [`Session::owner`]. Cheap to clone.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a lock, or takes it again. In a stronger mode than it is held in, this is an upgrade, for all guards.
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self.session.clone(), vec![name.into()], Some(self.name.clone()))
    }

    /// Takes several locks, all together or none; what it holds of them already it must hold by the same request.
    pub fn locks<I, S>(&self, names: I) -> Acquire
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let names = names.into_iter().map(Into::into).collect();
        Acquire::new(self.session.clone(), names, Some(self.name.clone()))
    }
}

/// What the names of owners begin with that are made for one acquire: no other owner's does, or it would share their
/// locks.
const GENERATED: char = '~';

/// The owner of one acquire alone, by the number of its request.
pub(crate) fn generated(seq: Seq) -> String {
    format!("{GENERATED}{:x}", seq.get())
}

/// Checks the name of an owner that a program gave. In a session that `joined` another's lease it may be one that was
/// made there.
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

/// Owner and names.
type Key = (String, Vec<String>);

/// What the named owners of a session hold.
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
    /// A request is under way.
    Busy,
    Held(Weak<Grant>),
}

/// How an acquire of a named owner begins.
pub(crate) enum Begun {
    /// It holds it already.
    Held(Hold),
    /// It has to ask.
    Asks(Turn),
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics with it")
    }

    /// Waits until nothing else is under way for this owner and names. The names must be in order.
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

    /// None if something is under way.
    fn try_begin(core: &Arc<Core>, key: &Key) -> Option<Begun> {
        loop {
            let (seen, held) = match core.owners.lock().places.get(key) {
                Some((_, Place::Busy)) => return None,
                Some((turn, Place::Held(grant))) => (Some(*turn), Some(grant.clone())),
                None => (None, None),
            };
            // Looked at without the lock: a grant that ends here takes it.
            match held.as_ref().map(Weak::upgrade) {
                Some(Some(grant)) => match grant.enter() {
                    Some(again) => return Some(Begun::Held(again)),
                    // Its release, or that of what remains of it, comes first.
                    None if grant.clear() => return None,
                    // Lost: another may be asked for while its guards are still about.
                    None => {}
                },
                // It is going, and its place with it.
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

/// The right to ask for one lock as one owner. The next one begins when the last clone is dropped.
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
    /// It was granted.
    pub(crate) fn held(&self, grant: Weak<Grant>) {
        self.set(Place::Held(grant));
    }

    /// It is being released.
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
