//! The runtime behind a blocking client, and its orderly end.
//!
//! Invariant: locks and leases dropped before the last handle are released before the engine stops, if the cluster
//! answers within `END_PATIENCE`.

use crate::error::{Error, ErrorKind};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum time that dropping the last handle waits for releases that were started before. Whatever is left ends with
/// its lease.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Interval between two checks for unfinished tasks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Engine {
    /// Always present until the engine is dropped.
    runtime: Option<Runtime>,
}

impl Engine {
    pub(super) fn start() -> Result<Arc<Engine>, Error> {
        // One thread: it only ever waits for sockets and timers.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tollgate-client")
            .enable_all()
            .build()
            .map_err(|error| {
                let says = format!("no thread could be started for the client: {error}");
                Error::new(ErrorKind::Internal, says, false)
            })?;
        Ok(Arc::new(Engine { runtime: Some(runtime) }))
    }

    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().expect("there until it is dropped").block_on(future)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if Handle::try_current().is_err() {
            return finish(runtime);
        }
        // Blocking is not allowed inside a runtime. Without a thread, what is left ends with its lease.
        let _ = std::thread::Builder::new().name("tollgate-client-end".to_owned()).spawn(|| finish(runtime));
    }
}

fn finish(runtime: Runtime) {
    let until = Instant::now() + END_PATIENCE;
    while runtime.metrics().num_alive_tasks() > 0 && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    runtime.shutdown_background();
}
