//! The end of a command that held something: what went wrong is told at once, then it is given back, within bounds.
//!
//! Invariant: nothing that the cluster is slow to answer keeps a loss from being told, nor the process from ending soon
//! after. What is not given back in time ends with its lease.

use super::run::forwarding::Forwarding;
use crate::exit::Exit;
use crate::failure::complain;
use crate::globals::Globals;
use crate::span;
use std::time::Duration;
use tollgate_client::{Error, ErrorKind, Session};

/// How long the end of a command may be held up by each thing that is given back.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// Waits until the cluster has taken back what it was asked to take; what could not be is remarked on.
pub(crate) async fn give_back<T>(
    globals: &Globals,
    name: &str,
    stays: Stays,
    giving: impl Future<Output = Result<T, Error>>,
) -> GivenBack {
    match tokio::time::timeout(PATIENCE, giving).await {
        Ok(Ok(_)) => GivenBack::Done,
        Ok(Err(error))
            if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::Lost) =>
        {
            GivenBack::WasLost(error.to_string())
        }
        Ok(Err(_)) | Err(_) => {
            globals.remark(&format!("warning: {name} could not be given back; {}", stays.text()));
            GivenBack::Unknown
        }
    }
}

/// Says how it went, and only then ends the session. A signal cuts that short, unless there was a command, for which it
/// was meant; one that came before, to cut short what was given back, counts for this too.
pub(crate) async fn close(session: Session, went: anyhow::Result<Exit>, signals: &mut Forwarding) -> Exit {
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
        _ = tokio::time::timeout(PATIENCE, session.close()) => {}
    }
    exit
}
