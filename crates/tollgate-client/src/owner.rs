//! Named owners: threads of control inside a session.
//!
//! An owner that holds a lock may take it again: its guards share one grant, and only the last of them gives it back.
//! Invariant: of one owner and lock, one request is under way at a time, releases included, so that no release meets an
//! acquire that came after it. Not here: the requests (`acquire`), what is shared (`grant`).

use crate::acquire::Acquire;
use crate::grant::Grant;
use crate::session::{Core, Session};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tokio::sync::Notify;

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
    Held(Arc<Grant>),
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
                Some(Some(grant)) if grant.state().is_ok() => return Some(Begun::Held(grant)),
                // The last guard is going: its release comes first.
                Some(None) => return None,
                // Lost: another may be asked for while its guards are still about.
                Some(Some(_)) | None => {}
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
