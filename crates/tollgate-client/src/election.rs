//! Elections from outside: who leads, and every change of that. Not here: standing for one (`campaign`).

use crate::client::Client;
use crate::consistency::Consistency;
use crate::convert;
use crate::error::Error;
use crate::leader::Leader;
use crate::pilot::Pause;
use crate::trouble::{Trouble, trouble};
use crate::unary::ANSWER_BYTES_MAX;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Revision, Token};

/// Leaders that wait for a reader.
const LEADERS_MAX: usize = 16;

/// An election, seen from outside.
#[derive(Debug, Clone)]
pub struct Election {
    client: Client,
    name: String,
}

impl Client {
    /// An election, by the name of its lock.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// use tokio_stream::StreamExt;
    ///
    /// let mut leaders = client.election("scheduler").observe();
    /// while let Some(leader) = leaders.next().await {
    ///     match leader? {
    ///         Some(leader) => println!("{} leads with token {}", leader.client_id, leader.token),
    ///         None => println!("nobody leads"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: &str) -> Election {
        Election { client: self.clone(), name: name.to_owned() }
    }
}

impl Election {
    /// Who leads now; none if nobody does.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        self.leader_with(Consistency::Linearizable).await
    }

    /// Who leads, read as fresh as asked for.
    pub async fn leader_with(&self, consistency: Consistency) -> Result<Option<Leader>, Error> {
        Ok(self.read(consistency).await?.1)
    }

    async fn read(&self, consistency: Consistency) -> Result<(Revision, Option<Leader>), Error> {
        let consistency = convert::consistency(consistency);
        let request = v1::LeaderRequest { name: self.name.clone(), consistency };
        let OpResult::Leader(response) = self.client.call(Op::Leader(request)).await? else {
            return Err(Error::unexpected("Leader"));
        };
        let at = convert::header_revision(response.header.as_ref())?;
        Ok((at, response.leader.map(convert::leader).transpose()?))
    }

    /// Who leads now, and then every change; none while nobody leads.
    ///
    /// It goes on by itself when its connection breaks. Leaders that were over before it could be told may be left out;
    /// the present one never is. It ends after an error, which is one that trying again does not help.
    pub fn observe(&self) -> Observe {
        let (told, leaders) = mpsc::channel(LEADERS_MAX);
        let observer = Observer { election: self.clone(), told, last: None };
        Observe { leaders, task: self.client.runtime().spawn(observer.run()) }
    }
}

/// Who leads, as it changes.
#[derive(Debug)]
pub struct Observe {
    leaders: mpsc::Receiver<Result<Option<Leader>, Error>>,
    task: JoinHandle<()>,
}

impl Stream for Observe {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.leaders.poll_recv(context)
    }
}

impl Drop for Observe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task behind an [`Observe`].
struct Observer {
    election: Election,
    told: mpsc::Sender<Result<Option<Leader>, Error>>,
    /// What was told last, and the revision from which on it is known to hold.
    last: Option<(Revision, Option<(Token, Revision)>)>,
}

/// Nobody listens any more, or nothing more can be told.
struct Over;

impl Observer {
    async fn run(mut self) {
        let mut pause = Pause::new();
        loop {
            let Ok(heard) = self.follow().await else { return };
            if heard {
                pause = Pause::new();
            }
            pause.wait(Duration::ZERO).await;
        }
    }

    /// Until the stream breaks; true if anything was heard on it.
    async fn follow(&mut self) -> Result<bool, Over> {
        let client = self.election.client.clone();
        let line = client.pilot().line().await;
        let mut service =
            ElectionServiceClient::new(line.channel()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let request = v1::ObserveRequest { name: self.election.name.clone() };
        let mut changes = match service.observe(request).await {
            Ok(changes) => changes.into_inner(),
            Err(status) => return self.failed(trouble(&status)).await,
        };
        // What changed while nobody listened, the end of a leader included, which a new stream does not tell.
        match self.election.read(Consistency::Linearizable).await {
            Ok((at, leader)) => self.tell(at, leader).await?,
            Err(error) => return self.failed(Trouble::of(error)).await,
        }
        // A node that can't follow the election ends each stream at once: then the pause before the next one grows.
        let mut heard = false;
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                // The client has left the node for another: it may be cut off from the cluster.
                () = client.pilot().replaced(&line) => return Ok(true),
            };
            heard |= matches!(change, Some(Ok(_)));
            match change {
                Some(Ok(change)) => {
                    let read = convert::header_revision(change.header.as_ref());
                    let read = read.and_then(|at| Ok((at, change.leader.map(convert::leader).transpose()?)));
                    match read {
                        Ok((at, leader)) => self.tell(at, leader).await?,
                        Err(error) => return self.failed(Trouble::Lasting(error)).await,
                    }
                }
                Some(Err(status)) => {
                    self.failed(trouble(&status)).await?;
                    return Ok(heard);
                }
                None => return Ok(heard),
            }
        }
    }

    /// Tells it unless it is old or has been told.
    async fn tell(&mut self, at: Revision, leader: Option<Leader>) -> Result<(), Over> {
        let now = leader.as_ref().map(|leader| (leader.token, leader.value_revision));
        if let Some((known, last)) = &mut self.last {
            if at < *known {
                return Ok(());
            }
            *known = at;
            if now == *last {
                return Ok(());
            }
        }
        self.last = Some((at, now));
        self.told.send(Ok(leader)).await.map_err(|_| Over)
    }

    /// Trouble that passes is not told.
    async fn failed(&mut self, trouble: Trouble) -> Result<bool, Over> {
        match trouble {
            Trouble::Passing => Ok(false),
            Trouble::Lasting(error) => {
                // Its reader may be gone.
                let _ = self.told.send(Err(error)).await;
                Err(Over)
            }
        }
    }
}
