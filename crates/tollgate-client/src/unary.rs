//! Unary calls, for what is not part of a session stream: lists, explanations, administration.
//!
//! Invariant: such a call is repeated only if nothing happened or a repeat does no harm, until the call's time is up.
//! Not here: operations of the stream (`call`).

use crate::client::Client;
use crate::connections::Pause;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tollgate_proto::Retry;
use tollgate_proto::v1::ErrorReason;
use tollgate_types::GroupId;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// Maximum size of an answer: the server cuts lists into pages far below this.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Effect that a second attempt after an unknown outcome may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A second attempt does no harm.
    Harmless,
    /// A second attempt may do harm: the caller must decide.
    Never,
}

impl Client {
    /// Makes a unary call, at the leader if the node says that only the leader can serve it.
    pub(crate) async fn unary<T, F>(&self, repeat: Repeat, ask: impl Fn(Channel) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.unary_within(self.call_timeout(), repeat, ask).await
    }

    /// Same as [`Client::unary`], for a call that may take up to `patience`.
    pub(crate) async fn unary_within<T, F>(
        &self,
        patience: Duration,
        repeat: Repeat,
        ask: impl Fn(Channel) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + patience;
        let (mut pause, mut elsewhere, mut last) = (Pause::new(), None::<Channel>, None);
        loop {
            let channel = match elsewhere.take() {
                Some(channel) => channel,
                None => match timeout_at(until, self.channel()).await {
                    Ok(channel) => channel?,
                    Err(_) => {
                        return Err(last.unwrap_or_else(|| self.connections().endpoints().unreachable(false)));
                    }
                },
            };
            let error = match timeout_at(until, ask(channel)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => Error::of_status(&status),
                Err(_) => return Err(last.unwrap_or_else(no_answer)),
            };
            let again = match error.cause().map(ErrorReason::retry) {
                Some(Retry::AtLeader) => {
                    elsewhere = self.leader_of(&error, until).await;
                    true
                }
                // A full disk does not empty by itself: people read the answer, and make room.
                Some(Retry::Later) => error.cause() != Some(ErrorReason::DiskFull),
                Some(Retry::AtItsGroup) => true,
                Some(Retry::AsItIs | Retry::IfStillWanted) => repeat == Repeat::Harmless,
                Some(Retry::No | Retry::AtAnotherNode) => false,
                // The connection broke, or a proxy on the way failed.
                None => repeat == Repeat::Harmless && error.kind() != ErrorKind::Unsupported,
            };
            if !again || Instant::now() >= until {
                return Err(error);
            }
            self.connections().look_again();
            last = Some(error);
            pause.wait(Duration::ZERO).await;
        }
    }

    /// Makes a unary call at the node that the stream goes to, once.
    pub(crate) async fn unary_once<T, F>(&self, ask: impl FnOnce(Channel) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + self.call_timeout();
        let channel = self.channel().await?;
        match timeout_at(until, ask(channel)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Error::of_status(&status)),
            Err(_) => Err(no_answer()),
        }
    }

    /// Makes a unary call at one node, and no other.
    pub(crate) async fn unary_at<T, F>(
        &self,
        endpoint: &str,
        ask: impl FnOnce(Channel) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + self.call_timeout();
        let endpoint = Endpoint::parse(endpoint)?;
        let channel = endpoint.dial(self.call_timeout()).await?;
        match timeout_at(until, ask(channel)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Error::of_status(&status)),
            Err(_) => Err(no_answer()),
        }
    }

    /// Opens a connection to the leader that an error names.
    async fn leader_of(&self, error: &Error, until: Instant) -> Option<Channel> {
        let wire = error.wire()?;
        let address = &wire.leader_address;
        self.connections().hint(GroupId::new(wire.group_id), address);
        if self.connections().is_behind_gateway() {
            return None;
        }
        let endpoint = Endpoint::parse(address).ok()?;
        timeout_at(until, endpoint.dial(self.call_timeout())).await.ok()?.ok()
    }
}

fn no_answer() -> Error {
    Error::new(
        ErrorKind::TimedOut,
        "no answer in time: the cluster may have no leader, or too much to do",
        true,
    )
}
