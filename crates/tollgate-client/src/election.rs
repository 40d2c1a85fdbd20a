//! Elections from outside: reading the leader, and following every change. Not here: candidacy (`campaign`).

use crate::client::Client;
use crate::connections::Pause;
use crate::consistency::Consistency;
use crate::convert;
use crate::error::Error;
use crate::failure::{Failure, classify};
use crate::leader::Leader;
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

/// Maximum number of leaders that are buffered for a reader.
const LEADERS_MAX: usize = 16;

/// Election, seen from outside.
#[derive(Debug, Clone)]
pub struct Election {
    client: Client,
    name: String,
}

impl Client {
    /// Returns the election with this name, which is the name of its lock.
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
    /// Returns the present leader; none if the election has none.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        self.leader_with(Consistency::Linearizable).await
    }

    /// Returns the present leader, read with the given consistency.
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

    /// Streams the present leader, and then every change; `None` while the election has no leader.
    ///
    /// The stream continues by itself when its connection breaks. Past leaders may be left out if they were over before
    /// they could be reported; the present leader never is. The stream ends after an error, which is one that retrying
    /// does not cure.
    pub fn observe(&self) -> Observe {
        let (told, leaders) = mpsc::channel(LEADERS_MAX);
        let observer = Observer { election: self.clone(), told, last: None };
        Observe { leaders, task: self.client.runtime().spawn(observer.run()) }
    }
}

/// Stream of the leaders of an election.
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

/// Task behind an [`Observe`].
struct Observer {
    election: Election,
    told: mpsc::Sender<Result<Option<Leader>, Error>>,
    /// Last reported leader, and the last revision at which it is known to lead.
    last: Option<(Revision, Option<(Token, Revision)>)>,
}

/// Marker for the end of an observation: the reader is gone, or an error was reported.
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

    /// Follows the election until the stream breaks. Returns true if anything was received.
    async fn follow(&mut self) -> Result<bool, Over> {
        let client = self.election.client.clone();
        let stream = client.connections().stream().await;
        let mut service =
            ElectionServiceClient::new(stream.channel()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let request = v1::ObserveRequest { name: self.election.name.clone() };
        let mut changes = match service.observe(request).await {
            Ok(changes) => changes.into_inner(),
            Err(status) => return self.failed(classify(&status)).await,
        };
        // Covers changes from before the stream, including the end of a leader, which a new stream does not report.
        match self.election.read(Consistency::Linearizable).await {
            Ok((at, leader)) => self.tell(at, leader).await?,
            Err(error) => return self.failed(Failure::of(error)).await,
        }
        // A node that can't follow the election ends each stream at once: then the pause before the next stream grows.
        let mut heard = false;
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                // The client has left the node for another, because the node may be cut off from the cluster.
                () = client.connections().replaced(&stream) => return Ok(true),
            };
            heard |= matches!(change, Some(Ok(_)));
            match change {
                Some(Ok(change)) => {
                    let read = convert::header_revision(change.header.as_ref());
                    let read = read.and_then(|at| Ok((at, change.leader.map(convert::leader).transpose()?)));
                    match read {
                        Ok((at, leader)) => self.tell(at, leader).await?,
                        Err(error) => return self.failed(Failure::Lasting(error)).await,
                    }
                }
                Some(Err(status)) => {
                    self.failed(classify(&status)).await?;
                    return Ok(heard);
                }
                None => return Ok(heard),
            }
        }
    }

    /// Reports a leader unless it is outdated or was reported before.
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

    /// Reports a lasting error and ends; returns false for trouble that passes, which is not reported.
    async fn failed(&mut self, trouble: Failure) -> Result<bool, Over> {
        match trouble {
            Failure::Passing => Ok(false),
            Failure::Lasting(error) => {
                // The reader may be gone.
                let _ = self.told.send(Err(error)).await;
                Err(Over)
            }
        }
    }
}
