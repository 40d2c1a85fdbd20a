//! What a program has while it holds a lock.

use crate::acquire::{not_acquired, within};
use crate::acquire_error::AcquireError;
use crate::claim::{self, Claim, Settled, Wait};
use crate::convert;
use crate::error::Error;
use crate::grant::{Grant, Hold, is_not_held, wire_names};
use crate::lost::{Lost, LostReason};
use crate::session::{Core, Failed};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tollgate_proto::convert::{ModeFields, write_mode};
use tollgate_proto::v1::{
    self, CancelOutcome, EndReason, operation::Op, operation_result::Result as OpResult,
};
use tollgate_types::{LeaseId, Lineage, Mode, Revision, Token};

/// A lock that is held.
///
/// A guard is no proof: the program may have been paused for longer than its lease lived. Hand
/// [`token`](Guard::token) to whatever is written to under the lock, and have it refuse lower ones.
///
/// Dropped, the lock is released in the background, and that is retried until the cluster has done it or the lease has
/// ended; [`release`](Guard::release) waits for it.
///
/// ```no_run
/// # async fn work() {}
/// # async fn example(session: tollgate_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = session.lock("reports/daily").await?;
/// tokio::select! {
///     () = work() => guard.release().await?,
///     lost = guard.lost() => eprintln!("stopped: {lost}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Guard {
    grant: Hold,
}

impl Guard {
    pub(crate) fn new(grant: Hold) -> Guard {
        Guard { grant }
    }

    /// The fencing token: higher than that of every holder before. Of several names, that of the first.
    ///
    /// Checked against the clock at every call: once the lease might have ended, there is no token to be had.
    pub fn token(&self) -> Result<Token, Lost> {
        self.grant.state().map(|state| state.token)
    }

    /// The fencing token of each name, in order.
    pub fn tokens(&self) -> Result<Vec<(String, Token)>, Lost> {
        let state = self.grant.state()?;
        if !state.tokens.is_empty() {
            return Ok(state.tokens);
        }
        Ok(self.grant.names.iter().map(|name| (name.clone(), state.token)).collect())
    }

    /// The lock's name; of several, the first in order.
    pub fn name(&self) -> &str {
        &self.grant.names[0]
    }

    /// All names, in order.
    pub fn names(&self) -> &[String] {
        &self.grant.names
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.grant.last_known().mode
    }

    /// The lease that it hangs on.
    pub fn lease_id(&self) -> LeaseId {
        self.grant.core().lease
    }

    /// The history of grants that its token belongs to ([`Session::lineage`](crate::Session::lineage)).
    pub fn lineage(&self) -> Option<Lineage> {
        self.grant.core().lineage()
    }

    /// The owner that holds it: the name of an [`OwnerHandle`](crate::OwnerHandle), or one made for this acquire alone.
    pub fn owner(&self) -> &str {
        &self.grant.owner
    }

    /// How long it waited in line.
    pub fn waited(&self) -> Duration {
        self.grant.waited
    }

    /// Whether a process that shares the lease held the lock before, under the same owner. Releasing such a guard
    /// leaves the lock to it.
    pub fn is_inherited(&self) -> bool {
        self.grant.inherited
    }

    /// How long it can be relied on if no more keepalives are answered; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// When [`remaining`](Guard::remaining) would be over by the wall clock, in milliseconds since 1970: a hint for
    /// other processes, no more, for wall clocks jump.
    pub fn deadline_unix_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from((now + self.remaining()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it is lost; checked against the clock at every call.
    pub fn is_lost(&self) -> bool {
        self.grant.state().is_err()
    }

    /// Completes when the lock is lost, and says why.
    pub async fn lost(&self) -> Lost {
        self.grant.until_lost().await
    }

    /// Runs a future as long as the lock is held: dropped when it is lost, and not begun if it is lost already.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.grant.state()?;
        tokio::select! {
            biased;
            lost = self.grant.until_lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    /// Changes how it is held, waiting if others are in the way. A weaker mode is had at once and keeps the token; a
    /// stronger one goes ahead of the queue and has a new token, and meanwhile the lock is held as before. Guards of
    /// the same owner change with it. Cancel-safe: dropped, the lock is held in the old mode or, if it was too late,
    /// in the new one.
    pub async fn convert(&mut self, mode: Mode) -> Result<(), AcquireError> {
        convert(&self.grant, |_| mode, Wait::Forever, Instant::now()).await
    }

    /// As [`convert`](Guard::convert), but waits at most so long; with zero, not at all.
    pub async fn convert_within(&mut self, mode: Mode, wait: Duration) -> Result<(), AcquireError> {
        let wait = if wait.is_zero() { Wait::No } else { Wait::For(wait) };
        convert(&self.grant, |_| mode, wait, Instant::now()).await
    }

    /// Holds it alone from now on, with a new token. Two readers that both wait for this are a deadlock: one is
    /// refused.
    pub async fn upgrade(&mut self) -> Result<(), AcquireError> {
        self.convert(Mode::Exclusive).await
    }

    /// Lets other readers in.
    pub async fn downgrade(&mut self) -> Result<(), AcquireError> {
        self.convert(Mode::Shared).await
    }

    /// Gives the lock back, and waits until the cluster has taken it. Of several guards of one owner and name, only the
    /// last does. Dropped before it has ended, it goes on in the background.
    ///
    /// An error of kind [`Lost`](crate::ErrorKind::Lost), or with reason `NOT_HELD`, says that the lock was lost
    /// before.
    pub async fn release(self) -> Result<(), Error> {
        self.release_at().await.map(drop)
    }

    /// As [`release`](Guard::release), and tells the revision of the release. None if nothing was released: another
    /// guard holds the lock, or it is inherited, or it ended with its session.
    pub async fn release_at(self) -> Result<Option<Revision>, Error> {
        self.grant.release().await
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("names", &self.grant.names)
            .field("token", &self.grant.last_known().token)
            .field("lost", &self.grant.state().err())
            .finish_non_exhaustive()
    }
}

/// Changes how a grant is held, to a mode that depends on how it is.
pub(crate) async fn convert(
    grant: &Arc<Grant>,
    mode: impl FnOnce(Mode) -> Mode,
    wait: Wait,
    began: Instant,
) -> Result<(), AcquireError> {
    let core = Arc::clone(grant.core());
    // Until an earlier change is settled, one that was given up included, nobody knows what it changes from.
    let turn = grant.converting().lock_owned();
    let turn = within(&core, &grant.names[0], wait, began, turn).await?;
    let held = grant.state()?.mode;
    let mode = mode(held);
    if held == mode {
        return Ok(());
    }
    let _place = claim::place(&core, wait, began).await?;
    grant.converts(Some(mode));
    let changing = Changing { grant: Arc::downgrade(grant), _turn: turn };
    let settled: Settled = Box::new(move |answer| {
        let changing = changing;
        if let (Some(grant), Some(answer)) = (changing.grant.upgrade(), answer) {
            settle(&grant, &answer);
        }
    });
    let mut claim = Claim::new(&core, grant.names[..1].into(), false, Some(settled));
    let ModeFields { mode: wire_mode, permits, of } = write_mode(mode);
    let (name, names) = wire_names(&grant.names);
    let mut op = Op::Convert(v1::ConvertRequest {
        name,
        names,
        lease_id: core.lease.get(),
        owner: grant.owner.clone(),
        mode: wire_mode.into(),
        permits,
        of,
        timeout_ms: wait.timeout_ms(began),
        request: Some(Core::request(claim.seq())),
    });
    let answered = match claim.ask(&mut op, wait, began).await {
        Ok(answered) => answered,
        Err(failed) => {
            if let Failed::Error(error) = &failed
                && is_not_held(error)
            {
                grant.lose(Lost::new(LostReason::Forced));
            }
            return Err(claim::given_up(failed, &grant.names[0], wait));
        }
    };
    let OpResult::Lock(response) = answered.result else {
        return Err(Error::unexpected("a convert").into());
    };
    if response.acquired {
        let mode = convert::mode(response.mode, response.permits, response.of).unwrap_or(mode);
        let token = convert::token(response.fencing_token)?;
        grant.converted(mode, token);
        claim.disarm();
        return Ok(());
    }
    claim.disarm();
    let reason = response.end_reason();
    if let EndReason::Forced | EndReason::MaxHold | EndReason::Released = reason {
        grant.lose(Lost::new(LostReason::of_end(reason)));
    }
    Err(not_acquired(&core, &grant.names[0], &response))
}

/// A change of a grant's mode, until it is settled.
struct Changing {
    grant: Weak<Grant>,
    _turn: OwnedMutexGuard<()>,
}

impl Drop for Changing {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.upgrade() {
            grant.converts(None);
        }
    }
}

/// A change that nobody waited for was cancelled, or came first.
fn settle(grant: &Grant, answer: &v1::CancelWaitResponse) {
    if answer.outcome() == CancelOutcome::Granted
        && let (Ok(mode), Ok(token)) =
            (convert::mode(answer.mode, answer.permits, answer.of), convert::token(answer.fencing_token))
    {
        grant.converted(mode, token);
    }
}
