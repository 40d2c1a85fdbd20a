//! The end of a command that held something: reports the error at once, then releases what was held, within bounds.
//!
//! Invariant: a slow cluster delays neither the report of a loss nor, by more than a short time, the end of the
//! process; a wait that the user may notice is announced with its reason. A lock that is not released in time ends with
//! its lease.

use super::run::forwarding::Forwarding;
use crate::exit::{Exit, WithExit};
use crate::failure::complain;
use crate::globals::Globals;
use crate::span;
use std::time::Duration;
use tollgate_client::{Error, ErrorKind, Session};

/// Maximum time that releasing a lock may delay the end of a command, and then the end of its lease: longer than a
/// leader election takes as a rule.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time after which the wait for the cluster is announced.
const SAYS_AFTER: Duration = Duration::from_millis(700);

/// Maximum time that ending the lease may delay the command if the cluster has not answered before.
const LAST_TRY: Duration = Duration::from_millis(200);

/// Result of a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    Done,
    /// The lock was lost before, with the reason.
    WasLost(String),
    /// The cluster has not confirmed the release.
    Unknown,
}

/// Time for which a lock stays held that could not be released.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stays {
    UntilLeaseEnds(Duration),
    /// The lock is held under a lease that another process keeps alive.
    UntilOutermostRunEnds,
}

impl Stays {
    fn text(self) -> String {
        match self {
            Stays::UntilLeaseEnds(left) => format!("it is free when its lease ends, in {}", span::text(left)),
            Stays::UntilOutermostRunEnds => "it stays held until the outermost run ends".to_owned(),
        }
    }
}

/// The end of a command: releases its locks and ends its session.
pub(crate) struct Parting<'a> {
    globals: &'a Globals,
    /// True if the cluster did not answer the last request: then nothing more is waited for.
    silent: bool,
}

impl Parting<'_> {
    pub(crate) fn new(globals: &Globals) -> Parting<'_> {
        Parting { globals, silent: false }
    }

    pub(crate) fn remark(&self, text: &str) {
        self.globals.remark(text);
    }

    /// Waits until the cluster has confirmed a release, and reports a release that failed.
    pub(crate) async fn give_back<T>(
        &mut self,
        name: &str,
        stays: Stays,
        giving: impl Future<Output = Result<T, Error>>,
    ) -> GivenBack {
        let waits = async {
            tokio::time::sleep(SAYS_AFTER).await;
            let patience = span::text(PATIENCE);
            self.globals.remark(&format!(
                "tollgate: giving {name} back; the cluster has not answered yet, waiting {patience} at most"
            ));
            std::future::pending().await
        };
        let given = tokio::select! {
            given = tokio::time::timeout(PATIENCE, giving) => given,
            never = waits => never,
        };
        match given {
            Ok(Ok(_)) => GivenBack::Done,
            Ok(Err(error))
                if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::Lost) =>
            {
                GivenBack::WasLost(error.to_string())
            }
            Ok(Err(_)) | Err(_) => {
                self.silent = true;
                self.globals
                    .remark(&format!("warning: the cluster did not take {name} back; {}", stays.text()));
                GivenBack::Unknown
            }
        }
    }

    /// Reports the result of the command, and only then ends the session. A signal cuts the end short, unless there was
    /// a command, for which the signal was meant. A signal that has already cut a release short counts for this too.
    pub(crate) async fn close(
        self,
        session: Session,
        went: anyhow::Result<Exit>,
        signals: &mut Forwarding,
    ) -> Exit {
        let silent = self.silent || went.as_ref().is_err_and(is_silence);
        let exit = went.unwrap_or_else(|error| complain(&error));
        let insisted = async {
            if signals.are_for_a_command() {
                std::future::pending::<()>().await;
            }
            if !signals.has_insisted() {
                signals.next_of_another_mind().await;
            }
        };
        tokio::select! {
            biased;
            () = insisted => {}
            // If closing fails, the lease ends by itself.
            _ = tokio::time::timeout(if silent { LAST_TRY } else { PATIENCE }, session.close()) => {}
        }
        exit
    }
}

/// True if the command ends because the cluster does not answer.
fn is_silence(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<WithExit>(), Some(WithExit(Exit::Unreachable, _)))
}
