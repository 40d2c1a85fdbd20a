//! The gRPC services: each call is an operation that is handed to the router.
//!
//! Invariant: a service decides nothing. A failure carries a `tollgate.v1.Error` in its status, which says what to do
//! next. Not here: the meaning of an operation (`operation`), its execution (`router`).

mod admin;
mod admin_relay;
mod election;
mod lock;
mod register;
mod relayed;
mod session;
mod undelivered;
mod watch;

pub(crate) use admin::Admin;
pub(crate) use admin_relay::AdminRelay;
pub(crate) use election::Election;
pub(crate) use lock::Locks;
pub(crate) use register::Registers;
pub(crate) use session::Sessions;
pub(crate) use undelivered::{FRAME_LIMIT, UndeliveredLayer, undelivered};
pub(crate) use watch::Watchers;

use tollgate_gateway::Router;
use tollgate_node::NodeHandle;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::Address;
use tonic::{Request, Response, Status};

/// Source of changes for the streams of clients.
#[derive(Clone)]
pub(crate) enum Following {
    /// The node in this process.
    Here(NodeHandle),
    /// Another node, whose streams a gateway passes on.
    Relayed(tollgate_gateway::Relay),
}

/// Returns the client's address, for people who look at leases.
pub(crate) fn address_of<T>(request: &Request<T>) -> Address {
    let address = request.remote_addr().map(|address| address.to_string());
    address.and_then(|address| Address::new(address).ok()).unwrap_or(Address::NONE)
}

/// Executes one operation and picks its response out of the result.
pub(crate) async fn unary<T>(
    router: &Router,
    from: Address,
    op: Op,
    pick: impl FnOnce(OpResult) -> Option<T>,
) -> Result<Response<T>, Status> {
    match router.execute(op, &from).await {
        OpResult::Error(error) => Err(error.into()),
        result => pick(result).map(Response::new).ok_or_else(|| {
            Status::from(v1::Error::new(v1::ErrorReason::Internal, "an operation had another's result"))
        }),
    }
}

/// Defines a unary rpc that is one operation. Expanded by hand as `async_trait` does it, which does not look into
/// macros.
macro_rules! rpc {
    ($name:ident, $request:ty => $op:ident, $result:ident($response:ty)) => {
        fn $name<'life0, 'async_trait>(
            &'life0 self,
            request: tonic::Request<$request>,
        ) -> std::pin::Pin<
            Box<dyn Future<Output = Result<tonic::Response<$response>, tonic::Status>> + Send + 'async_trait>,
        >
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async move {
                let from = crate::grpc::address_of(&request);
                let op = tollgate_proto::v1::operation::Op::$op(request.into_inner());
                crate::grpc::unary(&self.router, from, op, |result| match result {
                    tollgate_proto::v1::operation_result::Result::$result(response) => Some(response),
                    _ => None,
                })
                .await
            })
        }
    };
}
pub(crate) use rpc;
