//! Guard of a held lock.

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

/// Guard of a held lock.
///
/// A guard is no proof that the lock is still held: the program may have been paused for longer than its lease lived.
/// Hand [`token`](Guard::token) to whatever is written to under the lock, and have it refuse lower tokens.
///
/// Dropping the guard releases the lock in the background, and the release is retried until the cluster has done it or
/// the lease has ended; [`release`](Guard::release) waits for the release.
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

    /// Returns the fencing token, which is higher than the token of every holder before. With several names, returns
    /// the token of the first.
    ///
    /// Checked against the clock at every call: once the lease might have ended, the result is an error.
    pub fn token(&self) -> Result<Token, Lost> {
        self.grant.state().map(|state| state.token)
    }

    /// Returns the fencing token of each name, in order.
    pub fn tokens(&self) -> Result<Vec<(String, Token)>, Lost> {
        let state = self.grant.state()?;
        if !state.tokens.is_empty() {
            return Ok(state.tokens);
        }
        Ok(self.grant.names.iter().map(|name| (name.clone(), state.token)).collect())
    }

    /// Returns the lock's name; of several, the first in order.
    pub fn name(&self) -> &str {
        &self.grant.names[0]
    }

    /// Returns all names, in order.
    pub fn names(&self) -> &[String] {
        &self.grant.names
    }

    /// Returns the mode in which the lock is held.
    pub fn mode(&self) -> Mode {
        self.grant.last_known().mode
    }

    /// Returns the lease that holds the lock.
    pub fn lease_id(&self) -> LeaseId {
        self.grant.core().lease
    }

    /// Returns the lineage, the history of grants that the token belongs to
    /// ([`Session::lineage`](crate::Session::lineage)).
    pub fn lineage(&self) -> Option<Lineage> {
        self.grant.core().lineage()
    }

    /// Returns the owner that holds the lock: the name of an [`OwnerHandle`](crate::OwnerHandle), or a name made for
    /// this acquire alone.
    pub fn owner(&self) -> &str {
        &self.grant.owner
    }

    /// Returns the time that the acquire waited in line.
    pub fn waited(&self) -> Duration {
        self.grant.waited
    }

    /// True if a process that shares the lease held the lock before, under the same owner. Releasing such a guard
    /// leaves the lock to that process.
    pub fn is_inherited(&self) -> bool {
        self.grant.inherited
    }

    /// Returns the time for which the lock can be relied on if no more keepalives are answered; zero once the lock is
    /// lost.
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// Returns the end of [`remaining`](Guard::remaining) by the wall clock, in milliseconds since 1970: only a hint
    /// for other processes, because wall clocks jump.
    pub fn deadline_unix_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from((now + self.remaining()).as_millis()).unwrap_or(u64::MAX)
    }

    /// True once the lock is lost; checked against the clock at every call.
    pub fn is_lost(&self) -> bool {
        self.grant.state().is_err()
    }

    /// Completes when the lock is lost, and returns the reason.
    pub async fn lost(&self) -> Lost {
        self.grant.until_lost().await
    }

    /// Runs a future while the lock is held. The future is dropped when the lock is lost, and not started if the lock
    /// is lost already.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.grant.state()?;
        tokio::select! {
            biased;
            lost = self.grant.until_lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    /// Changes the mode of the lock, waiting if others are in the way. A weaker mode is granted at once and keeps the
    /// token; a stronger mode waits ahead of the queue and gets a new token, and meanwhile the lock is held as before.
    /// All guards of the same owner change with it. Cancel-safe: if it is dropped, the lock is held in the old mode, or
    /// in the new mode if the change came first.
    pub async fn convert(&mut self, mode: Mode) -> Result<(), AcquireError> {
        convert(&self.grant, |_| mode, Wait::Forever, Instant::now()).await
    }

    /// Same as [`convert`](Guard::convert), with a limit on the time to wait; zero does not wait.
    pub async fn convert_within(&mut self, mode: Mode, wait: Duration) -> Result<(), AcquireError> {
        let wait = if wait.is_zero() { Wait::No } else { Wait::For(wait) };
        convert(&self.grant, |_| mode, wait, Instant::now()).await
    }

    /// Changes to exclusive mode, with a new token. Two readers that both wait for this are a deadlock: one is refused.
    pub async fn upgrade(&mut self) -> Result<(), AcquireError> {
        self.convert(Mode::Exclusive).await
    }

    /// Changes to shared mode, which lets other readers in.
    pub async fn downgrade(&mut self) -> Result<(), AcquireError> {
        self.convert(Mode::Shared).await
    }

    /// Releases the lock, and waits until the cluster has done so. With several guards of one owner and name, only the
    /// last one releases the lock. If this future is dropped before its end, the release goes on in the background.
    ///
    /// An error of kind [`Lost`](crate::ErrorKind::Lost), or with reason `NOT_HELD`, means that the lock was lost
    /// before.
    pub async fn release(self) -> Result<(), Error> {
        self.release_at().await.map(drop)
    }

    /// Same as [`release`](Guard::release), and returns the revision of the release. None if nothing was released:
    /// another guard holds the lock, or it is inherited, or it ended with its session.
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

/// Changes the mode of a grant to a mode that depends on the present one.
pub(crate) async fn convert(
    grant: &Arc<Grant>,
    mode: impl FnOnce(Mode) -> Mode,
    wait: Wait,
    began: Instant,
) -> Result<(), AcquireError> {
    let core = Arc::clone(grant.core());
    // Until an earlier conversion is settled, even one that was given up, the present mode is not known.
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

/// Conversion of a grant's mode, until it is settled.
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

/// Applies the outcome of a conversion that its caller gave up: it was cancelled, or the grant came first.
fn settle(grant: &Grant, answer: &v1::CancelWaitResponse) {
    if answer.outcome() == CancelOutcome::Granted
        && let (Ok(mode), Ok(token)) =
            (convert::mode(answer.mode, answer.permits, answer.of), convert::token(answer.fencing_token))
    {
        grant.converted(mode, token);
    }
}
