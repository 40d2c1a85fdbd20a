//! Calls from one node to another that are not operations: administration, and reads that this node can't answer.
//!
//! Each call has a connection of its own, because such calls are rare. Invariant: nothing is asked twice here, and an
//! error says whether the call may have happened; a refusal by the other node comes back with all its details. Not
//! here: the choice of the node and retries (the callers), operations (`link`), calls that a gateway passes on
//! (`relay`).

use crate::relay::{RELAYED_BYTES_MAX, Repeat, broken, told_by};
use crate::router::Router;
use std::error::Error;
use std::time::{Duration, Instant};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, ErrorReason};
use tollgate_types::NodeId;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// Maximum time to open a connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Maximum time for another node to answer a read: the same as for this node.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// Time after which to retry a node that could not be reached.
const RETRY_MS: i64 = 200;

/// Metadata key of a read that comes from a node: the receiving node answers it or fails, and does not pass it on.
const READ_PASSED_ON: &str = "tollgate-read-passed-on";

/// Builds the request of a read that is passed on to another node, which must not pass it on again.
pub fn passing_on<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(READ_PASSED_ON, MetadataValue::from_static("1"));
    request
}

/// Returns true if another node has passed this read on.
pub fn is_passed_on<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(READ_PASSED_ON)
}

impl Router {
    /// Calls the admin service of another node.
    pub async fn ask_admin<T, F>(
        &self,
        node: NodeId,
        until: Instant,
        repeat: Repeat,
        call: impl FnOnce(AdminServiceClient<Channel>) -> F,
    ) -> Result<T, v1::Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let admin = |channel| AdminServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX);
        self.ask_node(node, until, repeat, |channel| call(admin(channel))).await
    }

    /// Has another node answer a read.
    pub async fn read_at<T, F>(&self, node: NodeId, read: impl FnOnce(Channel) -> F) -> Result<T, v1::Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let read = async |channel| read(channel).await.map(Response::into_inner);
        self.ask_node(node, Instant::now() + READ_PATIENCE, Repeat::Look, read).await
    }

    async fn ask_node<T, F>(
        &self,
        node: NodeId,
        until: Instant,
        repeat: Repeat,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, v1::Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let Some(address) = self.client_address(node) else {
            return Err(unreached(node, "where it serves clients is not known here"));
        };
        let address = address.strip_prefix("http://").unwrap_or(&address);
        let dial = async {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
            endpoint.connect_timeout(CONNECT_PATIENCE).tcp_nodelay(true).connect().await
        };
        let channel = dial.await.map_err(|error| {
            unreached(node, &format!("nobody answers at {address}: {}", innermost(&error)))
        })?;
        match tokio::time::timeout_at(until.into(), call(channel)).await {
            Ok(answer) => answer.map_err(|status| told_by(&status, node, repeat)),
            Err(_) => Err(broken(node, "it has not answered in time", repeat)),
        }
    }
}

/// Returns the error for a node that was not reached, so that nothing was asked.
fn unreached(node: NodeId, why: &str) -> v1::Error {
    let says = format!("node {node} can't be reached: {why}");
    v1::Error { retry_after_ms: RETRY_MS, ..v1::Error::new(ErrorReason::NoLeader, says) }
}

/// Returns the root cause of a transport error, whose own text does not say what failed.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_passed_on_once() {
        assert!(is_passed_on(&passing_on(())));
        assert!(!is_passed_on(&Request::new(())));
    }

    #[test]
    fn what_another_node_refuses_keeps_its_details_and_silence_may_hide_anything() {
        let node = NodeId::new(3).unwrap();
        let full =
            v1::Error { retry_after_ms: 7, ..v1::Error::new(ErrorReason::DiskFull, "free some space") };
        assert_eq!(told_by(&full.clone().into(), node, Repeat::Never), full);
        let broke = told_by(&Status::unknown("broken pipe"), node, Repeat::Never);
        assert_eq!((broke.reason(), broke.may_have_happened), (ErrorReason::Indeterminate, true));
        let unreached = unreached(node, "nobody answers");
        assert_eq!((unreached.reason(), unreached.may_have_happened), (ErrorReason::NoLeader, false));
    }
}
