//! Acquires locks.
//!
//! Invariant: an acquire that is dropped at any point leaves no lock and no waiter. Not here: how the invariant is kept
//! (`claim`), and the state of a held lock (`grant`).

use crate::acquire_error::{AcquireError, Closed};
use crate::belief;
use crate::call::Answered;
use crate::claim::{self, Claim, Settled, Wait};
use crate::convert;
use crate::error::Error;
use crate::grant::{About, Grant, Hold, Kind, State, wire_names};
use crate::guard::{self, Guard};
use crate::lost::{Lost, LostReason};
use crate::owner::{self, Begun, Owners, Turn};
use crate::session::{Core, Session};
use smallvec::SmallVec;
use std::fmt::Display;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tollgate_proto::convert::{ModeFields, write_mode};
use tollgate_proto::v1::{self, EndReason, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Metadata, Mode, Name, Names, Token};

/// Request for a lock or for several locks: set options, then await it.
///
/// Cancel-safe: if it is dropped at any point, by `timeout` or `select!` for example, it leaves no lock and no waiter
/// behind.
///
/// ```no_run
/// # async fn example(session: tollgate_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tollgate_client::AcquireError;
///
/// let reader = session.lock("config").shared().await?;
/// match session.lock("db/migrate").why("schema v42").wait(Duration::from_secs(5)).acquire().await {
///     Ok(guard) => guard.release().await?,
///     Err(AcquireError::TimedOut { holders, .. }) => println!("still held by {holders:?}"),
///     Err(error) => return Err(error.into()),
/// }
/// # drop(reader);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is awaited"]
pub struct Acquire {
    session: Session,
    names: Vec<String>,
    owner: Option<String>,
    mode: ModeAsked,
    wait: Wait,
    says: Says,
    lock_delay: Duration,
    max_hold: Option<Duration>,
    tells_owner: Option<Arc<OnceLock<String>>>,
}

/// Metadata of the claim.
#[derive(Debug, Clone)]
enum Says {
    /// Plain text, for people.
    Why(String),
    /// Arbitrary bytes.
    Metadata(Vec<u8>),
}

impl Says {
    fn check(self) -> Result<Metadata, Error> {
        match self {
            Says::Why(why) => {
                let metadata = Metadata::new(why).map_err(wrong("metadata"))?;
                metadata.check_plain().map_err(wrong("metadata"))?;
                Ok(metadata)
            }
            Says::Metadata(bytes) => Metadata::new(bytes).map_err(wrong("metadata")),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum ModeAsked {
    Is(Mode),
    Permits { n: u32, of: u32 },
}

impl Acquire {
    pub(crate) fn new(session: Session, names: Vec<String>, owner: Option<String>) -> Acquire {
        Acquire {
            session,
            names,
            owner,
            mode: ModeAsked::Is(Mode::Exclusive),
            wait: Wait::Forever,
            says: Says::Why(String::new()),
            lock_delay: Duration::ZERO,
            max_hold: None,
            tells_owner: None,
        }
    }

    /// Limits the time to wait in line. Zero means not to wait.
    pub fn wait(mut self, wait: Duration) -> Acquire {
        self.wait = if wait.is_zero() { Wait::No } else { Wait::For(wait) };
        self
    }

    /// Waits in line as long as the session lives; the default.
    pub fn wait_forever(mut self) -> Acquire {
        self.wait = Wait::Forever;
        self
    }

    /// Sets a text for people that explains why the lock is wanted: at most 4 KiB on one line, without control
    /// characters.
    pub fn why(mut self, why: impl Into<String>) -> Acquire {
        self.says = Says::Why(why.into());
        self
    }

    /// Sets metadata for programs that look at the lock, such as JSON: at most 4 KiB, any bytes. It replaces the text
    /// of [`why`](Acquire::why); if both are set, the last one counts. People see the metadata escaped.
    pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Acquire {
        self.says = Says::Metadata(metadata.into());
        self
    }

    /// Acquires the lock in shared mode, together with other readers.
    pub fn shared(self) -> Acquire {
        self.mode(Mode::Shared)
    }

    /// Same as [`Acquire::shared`].
    pub fn read(self) -> Acquire {
        self.shared()
    }

    /// Acquires the lock in exclusive mode; the default.
    pub fn exclusive(self) -> Acquire {
        self.mode(Mode::Exclusive)
    }

    /// Same as [`Acquire::exclusive`].
    pub fn write(self) -> Acquire {
        self.exclusive()
    }

    /// Acquires the lock in this mode.
    pub fn mode(mut self, mode: Mode) -> Acquire {
        self.mode = ModeAsked::Is(mode);
        self
    }

    /// Acquires `n` of a semaphore's `of` permits; `of` must be the same for all who use the name.
    pub fn permits(mut self, n: u32, of: u32) -> Acquire {
        self.mode = ModeAsked::Permits { n, of };
        self
    }

    /// Sets the lock-delay: the time that the lock stays closed to others if it is lost against this program's will, so
    /// that work that still relies on the lock can end.
    pub fn lock_delay(mut self, delay: Duration) -> Acquire {
        self.lock_delay = delay;
        self
    }

    /// Sets the maximum time that the lock is held, even if the session lives on.
    pub fn max_hold(mut self, max_hold: Duration) -> Acquire {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets a cell that receives the name of the owner as soon as the request is made: lease and owner together
    /// identify the request among the waiters.
    pub fn tell_owner(mut self, to: Arc<OnceLock<String>>) -> Acquire {
        self.tells_owner = Some(to);
        self
    }

    /// Acquires the lock if it is free, without waiting.
    pub async fn try_acquire(mut self) -> Result<Guard, AcquireError> {
        self.wait = Wait::No;
        self.acquire().await
    }

    /// Acquires the lock, waiting in line for as long as was set.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let began = Instant::now();
        let (session, asked) = self.check()?;
        let Some(owner) = &asked.owner else { return asked.take(session, None, began).await };
        let core = Arc::clone(session.core());
        match within(&core, &asked.names[0], asked.wait, began, Owners::begin(&core, owner, &asked.names))
            .await?
        {
            Begun::Held(hold) => asked.again(hold, began).await,
            Begun::Asks(turn) => asked.take(session, Some(turn), began).await,
        }
    }

    /// Checks the request, so that mistakes are reported before anything is sent.
    fn check(self) -> Result<(Session, Asked), Error> {
        let names = in_order(self.names)?;
        let mode = match self.mode {
            ModeAsked::Is(mode) => mode,
            ModeAsked::Permits { n, of } => Mode::permit(n, of).map_err(wrong("permits"))?,
        };
        let metadata = self.says.check()?;
        if let Some(owner) = &self.owner {
            owner::check(owner, self.session.core().joined)?;
        }
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(Error::invalid("max_hold_ms", "it is zero: leave it out to hold without end"));
        }
        let asked = Asked {
            names,
            owner: self.owner,
            mode,
            wait: self.wait,
            metadata,
            lock_delay: self.lock_delay,
            max_hold: self.max_hold,
            tells_owner: self.tells_owner,
        };
        Ok((self.session, asked))
    }
}

/// Checks the names of a request and sorts them.
fn in_order(names: Vec<String>) -> Result<Arc<[String]>, Error> {
    if let [name] = &names[..] {
        Name::new(name).map_err(wrong("name"))?;
        return Ok(names.into());
    }
    let names: Result<Vec<Name>, _> = names.iter().map(Name::new).collect();
    let names = names.and_then(Names::new).map_err(wrong("name"))?;
    Ok(names.as_slice().iter().map(ToString::to_string).collect())
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

fn wrong<E: Display>(field: &'static str) -> impl Fn(E) -> Error {
    move |invalid| Error::invalid(field, invalid)
}

/// Runs a future until the deadline of a wait or the end of the session, whichever comes first.
pub(crate) async fn within<T>(
    core: &Core,
    name: &str,
    wait: Wait,
    began: Instant,
    future: impl Future<Output = T>,
) -> Result<T, AcquireError> {
    let until = match wait {
        Wait::For(wait) => began.checked_add(wait),
        Wait::No => Some(began + core.client.call_timeout()),
        Wait::Forever => None,
    };
    let too_late = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = future => Ok(done),
        lost = core.until_lost() => Err(AcquireError::Lost(lost)),
        () = too_late => Err(AcquireError::TimedOut { name: name.to_owned(), holders: Vec::new(), position: 0 }),
    }
}

/// Acquire whose options were checked.
struct Asked {
    /// Names of the locks, in order.
    names: Arc<[String]>,
    owner: Option<String>,
    mode: Mode,
    wait: Wait,
    metadata: Metadata,
    lock_delay: Duration,
    max_hold: Option<Duration>,
    tells_owner: Option<Arc<OnceLock<String>>>,
}

impl Asked {
    /// Returns another guard for a lock that the owner holds already, after an upgrade if a stronger mode is wanted.
    async fn again(self, hold: Hold, began: Instant) -> Result<Guard, AcquireError> {
        if !hold.state()?.covers(self.mode) {
            let enough = |held: Mode| {
                if held.covers(self.mode) { held } else { held.join(self.mode).unwrap_or(self.mode) }
            };
            guard::convert(&hold, enough, self.wait, began).await?;
        }
        Ok(Guard::new(hold))
    }

    async fn take(self, session: Session, turn: Option<Turn>, began: Instant) -> Result<Guard, AcquireError> {
        let core = Arc::clone(session.core());
        let inherited = turn.is_some() && core.joined && self.is_held_elsewhere(&core).await?;
        let _place = claim::place(&core, self.wait, began).await?;
        let settled = turn.clone().map(|turn| Box::new(move |_| drop(turn)) as Settled);
        let mut claim = Claim::new(&core, Arc::clone(&self.names), !inherited, settled);
        let owner = self.owner.clone().unwrap_or_else(|| owner::generated(claim.seq()));
        if let Some(to) = &self.tells_owner {
            // If the same cell is given to two requests, it keeps the owner of the first.
            let _ = to.set(owner.clone());
        }
        let mut op = self.op(&core, &claim, &owner, began);
        let answered = match claim.ask(&mut op, self.wait, began).await {
            Ok(answered) => answered,
            Err(failed) => return Err(claim::given_up(failed, &self.names[0], self.wait)),
        };
        let OpResult::Lock(response) = &answered.result else {
            return Err(Error::unexpected("a lock").into());
        };
        if !response.acquired {
            let error = self.not_acquired(&core, response);
            claim.disarm();
            return Err(error);
        }
        let (state, create_revisions) = (self.state(response, &answered)?, self.create_revisions(response));
        let waited = convert::duration(response.waited_ms);
        let about = About { kind: Kind::Lock, names: self.names, owner, waited, create_revisions, inherited };
        let hold = Grant::begin(session, about, state, turn);
        claim.disarm();
        Ok(Guard::new(hold))
    }

    /// True if another process that shares the lease may hold the lock under the same owner.
    async fn is_held_elsewhere(&self, core: &Core) -> Result<bool, AcquireError> {
        let look = v1::GetLockRequest { name: self.names[0].clone(), ..v1::GetLockRequest::default() };
        let answered =
            core.ask(&mut Op::GetLock(look), Some(Instant::now() + core.client.call_timeout())).await?;
        let OpResult::GetLock(seen) = answered.result else {
            return Err(Error::unexpected("a look at a lock").into());
        };
        let (lease, owner) = (core.lease.get(), self.owner.as_deref().unwrap_or_default());
        Ok(seen.lock.is_some_and(|lock| may_be_held_by(&lock, lease, owner)))
    }

    fn op(&self, core: &Core, claim: &Claim, owner: &str, began: Instant) -> Op {
        let ModeFields { mode, permits, of } = write_mode(self.mode);
        let (name, names) = wire_names(&self.names);
        let (metadata, metadata_bytes) = match self.metadata.as_text() {
            Some(text) => (text.to_owned(), Vec::new()),
            None => (String::new(), self.metadata.as_bytes().to_vec()),
        };
        let lock = v1::LockRequest {
            name,
            names,
            lease_id: core.lease.get(),
            metadata,
            metadata_bytes,
            timeout_ms: self.wait.timeout_ms(began),
            mode: mode.into(),
            owner: owner.to_owned(),
            permits,
            of,
            lock_delay_ms: convert::millis_at_least(self.lock_delay),
            max_hold_ms: self.max_hold.map_or(0, convert::millis_at_least),
            tree: false,
            request: Some(Core::request(claim.seq())),
        };
        if self.wait == Wait::No { Op::TryLock(lock) } else { Op::Lock(lock) }
    }

    fn state(&self, response: &v1::LockResponse, answered: &Answered) -> Result<State, Error> {
        let token = convert::token(response.fencing_token)?;
        let mode = convert::mode(response.mode, response.permits, response.of).unwrap_or(self.mode);
        let named =
            |named: &v1::NamedToken| Some((named.name.clone(), Token::new(named.fencing_token).ok()?));
        let tokens = response.tokens.iter().filter_map(named).collect();
        let waited = convert::duration(response.waited_ms);
        // The cluster ends the grant by its own clock, which may be as fast as P7 allows.
        let max_hold_until =
            self.max_hold.map(|max_hold| held_from(answered, waited, response) + belief::span(max_hold));
        Ok(State::new(mode, token, tokens, max_hold_until))
    }

    /// Returns, for each name, the revision that identifies the claim in the name's group.
    fn create_revisions(&self, response: &v1::LockResponse) -> SmallVec<[u64; 1]> {
        let of = |name: &String| {
            let named = response.tokens.iter().find(|named| named.name == *name);
            named.map_or(response.create_revision, |named| named.create_revision)
        };
        self.names.iter().map(of).collect()
    }

    fn not_acquired(&self, core: &Core, response: &v1::LockResponse) -> AcquireError {
        not_acquired(core, &self.names[0], response)
    }
}

/// True if this owner within the lease holds a lock, or may hold it, because of many holders not all are shown. Leaving
/// alone a lock of one's own costs little; releasing another holder's lock would take it away from that holder.
fn may_be_held_by(lock: &v1::LockState, lease: u64, owner: &str) -> bool {
    let is_cut = lock.holder_count > lock.holders.len() as u64;
    is_cut || lock.holders.iter().any(|holder| holder.lease_id == lease && holder.owner == owner)
}

/// Returns the time of a grant as far as it is known, by the client's clock. A grant without a wait may have been made
/// by any attempt. A request that waited was in line when the last attempt arrived; the time that it waited is measured
/// by the node that made the answer, so this value is late by the time from grant to answer within the cluster. Over
/// several groups the grants come one after another, and their total wait says nothing about the first grant.
fn held_from(answered: &Answered, waited: Duration, response: &v1::LockResponse) -> Duration {
    if waited.is_zero() || is_over_groups(response) {
        answered.first_sent
    } else {
        answered.last_sent + waited
    }
}

/// True if names were granted one after another: each group has tokens and revisions of its own.
fn is_over_groups(response: &v1::LockResponse) -> bool {
    let grant = |named: &v1::NamedToken| (named.fencing_token, named.create_revision);
    response.tokens.windows(2).any(|two| grant(&two[0]) != grant(&two[1]))
}

/// Returns the error for a request that was answered without its lock.
pub(crate) fn not_acquired(core: &Core, name: &str, response: &v1::LockResponse) -> AcquireError {
    let (reason, position) = (response.end_reason(), response.position);
    let (name, holders) = (name.to_owned(), convert::holders(response.holders.clone()).unwrap_or_default());
    match reason {
        EndReason::Unspecified => {
            let left = convert::duration(response.closed_ms);
            let closed = (!left.is_zero()).then_some(Closed { left, restored: response.restored });
            AcquireError::Busy { name, holders, closed }
        }
        EndReason::TimedOut | EndReason::Cancelled => AcquireError::TimedOut { name, holders, position },
        EndReason::Deadlock => AcquireError::Deadlock { cycle: Vec::new() },
        EndReason::LeaseExpired | EndReason::LeaseRevoked | EndReason::Disconnected => {
            core.lose(LostReason::of_end(reason));
            AcquireError::Lost(core.check().err().unwrap_or(Lost::new(LostReason::of_end(reason))))
        }
        // The lock was granted, and taken away before the answer came.
        EndReason::Forced | EndReason::MaxHold | EndReason::Released => {
            AcquireError::Lost(Lost::new(LostReason::of_end(reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_a_hold_over_groups_counts_from_before_its_first_grant() {
        let secs = Duration::from_secs;
        let result = OpResult::Lock(v1::LockResponse::default());
        let answered = Answered { result, first_sent: secs(1), last_sent: secs(20) };
        let token = |fencing_token| v1::NamedToken { fencing_token, ..v1::NamedToken::default() };
        let of = |tokens| v1::LockResponse { tokens, ..v1::LockResponse::default() };
        for one_group in [of(vec![]), of(vec![token(3)]), of(vec![token(3), token(3)])] {
            assert_eq!(held_from(&answered, secs(60), &one_group), secs(80));
            assert_eq!(held_from(&answered, Duration::ZERO, &one_group), secs(1));
        }
        let several = of(vec![token(3), token(3), token(9)]);
        assert_eq!(held_from(&answered, secs(60), &several), secs(1));
    }

    #[test]
    fn one_that_is_not_among_the_holders_shown_may_hold_it_if_not_all_are() {
        let holder = v1::Holder { lease_id: 7, owner: "~1".to_owned(), ..v1::Holder::default() };
        let mut lock = v1::LockState { holders: vec![holder], holder_count: 1, ..v1::LockState::default() };
        assert!(may_be_held_by(&lock, 7, "~1"));
        assert!(!may_be_held_by(&lock, 7, "~2") && !may_be_held_by(&lock, 8, "~1"));
        lock.holder_count = 2;
        assert!(may_be_held_by(&lock, 7, "~2") && may_be_held_by(&lock, 8, "~1"));
        let read = convert::lock_info(v1::LockState::default(), &[], tollgate_types::Revision::ZERO).unwrap();
        let cut = crate::LockInfo { holder_count: 1001, ..read.clone() };
        let lease = tollgate_types::LeaseId::new(7).unwrap();
        assert!(cut.may_be_held_by(lease, "~1") && !read.may_be_held_by(lease, "~1"));
    }
}
