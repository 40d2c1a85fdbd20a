//! Candidacy and leadership: the leader of an election is the holder of the election's lock.
//!
//! Not here: reading and following elections of others (`election`).

use crate::acquire::not_acquired;
use crate::acquire_error::AcquireError;
use crate::claim::{self, Claim, Wait};
use crate::convert;
use crate::error::Error;
use crate::grant::{About, Grant, Hold, Kind, State};
use crate::lost::Lost;
use crate::owner;
use crate::session::{Core, Session};
use smallvec::SmallVec;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Mode, Name, Token};

/// Candidacy in an election: set options, then call [`Campaign::stand`].
///
/// ```no_run
/// # async fn lead() {}
/// # async fn example(session: tollgate_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// let leadership = session.campaign("scheduler").value("10.0.0.2:9000").stand().await?;
/// tokio::select! {
///     () = lead() => leadership.resign().await?,
///     lost = leadership.lost() => eprintln!("no longer leading: {lost}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it stands"]
pub struct Campaign {
    session: Session,
    election: String,
    value: Vec<u8>,
    wait: Wait,
}

impl Campaign {
    pub(crate) fn new(session: Session, election: String) -> Campaign {
        Campaign { session, election, value: Vec::new(), wait: Wait::Forever }
    }

    /// Sets the value that the leader publishes about itself from the moment of its election, for example its address.
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Campaign {
        self.value = value.into();
        self
    }

    /// Limits the time to wait in line. Zero means not to wait. The default is to wait as long as the session lives.
    pub fn wait(mut self, wait: Duration) -> Campaign {
        self.wait = if wait.is_zero() { Wait::No } else { Wait::For(wait) };
        self
    }

    /// Becomes a candidate, and waits until elected. Cancel-safe: if it is dropped, the candidacy ends, and the
    /// candidate does not lead.
    pub async fn stand(self) -> Result<Leadership, AcquireError> {
        let began = Instant::now();
        Name::new(&self.election).map_err(|invalid| Error::invalid("name", invalid))?;
        let core = Arc::clone(self.session.core());
        let _place = claim::place(&core, self.wait, began).await?;
        let names: Arc<[String]> = [self.election].into();
        let mut claim = Claim::new(&core, Arc::clone(&names), true, None);
        let owner = owner::generated(claim.seq());
        let mut op = Op::Campaign(v1::CampaignRequest {
            name: names[0].clone(),
            lease_id: core.lease.get(),
            owner: owner.clone(),
            value: self.value.clone(),
            timeout_ms: self.wait.timeout_ms(began),
            request: Some(Core::request(claim.seq())),
        });
        let answered = match claim.ask(&mut op, self.wait, began).await {
            Ok(answered) => answered,
            Err(failed) => return Err(claim::given_up(failed, &names[0], self.wait)),
        };
        let OpResult::Campaign(response) = answered.result else {
            return Err(Error::unexpected("a campaign").into());
        };
        let Some(leader) = response.leader.filter(|_| response.elected) else {
            claim.disarm();
            let told = v1::LockResponse { end_reason: response.end_reason, ..v1::LockResponse::default() };
            return Err(not_acquired(&core, &names[0], &told));
        };
        let token = convert::token(leader.fencing_token)?;
        let about = About {
            kind: Kind::Election,
            names,
            owner,
            waited: convert::duration(response.waited_ms),
            create_revisions: SmallVec::from_elem(leader.create_revision, 1),
            inherited: false,
        };
        let state = State::new(Mode::Exclusive, token, Vec::new(), None);
        let grant = Grant::begin(self.session, about, state, None);
        claim.disarm();
        Ok(Leadership { grant })
    }
}

/// Won election, until resigned or lost. Dropping it resigns in the background.
pub struct Leadership {
    grant: Hold,
}

impl Leadership {
    /// Returns the fencing token of the term: higher than the token of every leader before. Checked against the clock
    /// at every call.
    pub fn token(&self) -> Result<Token, Lost> {
        self.grant.state().map(|state| state.token)
    }

    /// Returns the name of the election.
    pub fn election(&self) -> &str {
        &self.grant.names[0]
    }

    /// Returns the owner under which the lease leads.
    pub fn owner(&self) -> &str {
        &self.grant.owner
    }

    /// Returns the time that the candidate waited to be elected.
    pub fn waited(&self) -> Duration {
        self.grant.waited
    }

    /// Returns the time for which the leadership can be relied on if no more keepalives are answered; zero once it is
    /// lost.
    pub fn remaining(&self) -> Duration {
        self.grant.remaining()
    }

    /// True if another leader may have been elected by now; checked against the clock at every call.
    pub fn is_lost(&self) -> bool {
        self.grant.state().is_err()
    }

    /// Completes when the leadership is lost, and returns the reason.
    pub async fn lost(&self) -> Lost {
        self.grant.until_lost().await
    }

    /// Runs a future while the leadership lasts. The future is dropped when the leadership is lost, and not started if
    /// it is lost already.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.grant.state()?;
        tokio::select! {
            biased;
            lost = self.grant.until_lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    /// Changes the value that the leader publishes. The change takes effect once, however often the request has to be
    /// repeated, and only while the leader leads under its token.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        let core = self.grant.core();
        let token = self.token().map_err(|lost| Error::from(crate::session::Failed::Lost(lost)))?;
        let _place = core.place().await;
        let number = core.seqs.number();
        let mut op = Op::Proclaim(v1::ProclaimRequest {
            name: self.election().to_owned(),
            lease_id: core.lease.get(),
            owner: self.grant.owner.clone(),
            fencing_token: token.get(),
            value: value.into(),
            request: Some(Core::request(number.seq)),
        });
        match core.ask(&mut op, Some(Instant::now() + core.client.call_timeout())).await?.result {
            OpResult::Proclaim(_) => Ok(()),
            _ => Err(Error::unexpected("a proclamation")),
        }
    }

    /// Steps down, and waits until the cluster has confirmed it. If this future is dropped before its end, it goes on
    /// in the background.
    pub async fn resign(self) -> Result<(), Error> {
        self.grant.release().await.map(drop)
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("election", &self.election())
            .field("token", &self.grant.last_known().token)
            .finish_non_exhaustive()
    }
}
