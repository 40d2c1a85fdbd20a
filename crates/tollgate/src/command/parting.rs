//! The end of a command that held something: what went wrong is told at once, then it is given back, within bounds.
//!
//! Invariant: nothing that the cluster is slow to answer keeps a loss from being told, nor the process from ending soon
//! after; a wait that is noticed says what for. What is not given back in time ends with its lease.

use super::run::forwarding::Forwarding;
use crate::exit::{Exit, WithExit};
use crate::failure::complain;
use crate::globals::Globals;
use crate::span;
use std::time::Duration;
use tollgate_client::{Error, ErrorKind, Session};

/// How long the end of a command may be held up by what is given back, and then by the end of its lease: longer than
/// electing a leader takes as a rule.
const PATIENCE: Duration = Duration::from_secs(3);

/// After so long it is said what is waited for.
const SAYS_AFTER: Duration = Duration::from_millis(700);

/// How long the lease's end may hold it up if the cluster has not answered before.
const LAST_TRY: Duration = Duration::from_millis(200);

/// Something that was asked to be given back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    Done,
    /// It was held no more, and why.
    WasLost(String),
    /// The cluster has not said so.
    Unknown,
}

/// How long something is held that could not be given back.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stays {
    UntilLeaseEnds(Duration),
    /// It is held under a lease that another process keeps alive.
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

/// The end of one command.
pub(crate) struct Parting<'a> {
    globals: &'a Globals,
    /// Whether the cluster did not answer when it was last asked for something: then nothing more is waited for.
    silent: bool,
}

impl Parting<'_> {
    pub(crate) fn new(globals: &Globals) -> Parting<'_> {
        Parting { globals, silent: false }
    }

    pub(crate) fn remark(&self, text: &str) {
        self.globals.remark(text);
    }

    /// Waits until the cluster has taken back what it was asked to take; what could not be is remarked on.
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

    /// Says how it went, and only then ends the session. A signal cuts that short, unless there was a command, for
    /// which it was meant; one that came before, to cut short what was given back, counts for this too.
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
            // Should this fail, the lease ends by itself.
            _ = tokio::time::timeout(if silent { LAST_TRY } else { PATIENCE }, session.close()) => {}
        }
        exit
    }
}

/// Whether the command ends because the cluster does not answer.
fn is_silence(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<WithExit>(), Some(WithExit(Exit::Unreachable, _)))
}
