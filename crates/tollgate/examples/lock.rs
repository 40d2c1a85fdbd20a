//! Takes a lock over plain gRPC, shows its fencing token, and releases it.
//!
//! With `make run` in another terminal: `cargo run -p tollgate --example lock -- 127.0.0.1:7400 db/migrate`.

#![allow(clippy::print_stdout, reason = "an example talks")]

use anyhow::Context;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{LeaseGrantRequest, LeaseRevokeRequest, LockRequest, UnlockRequest};
use tonic::transport::Endpoint;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7400".to_owned());
    let name = arguments.next().unwrap_or_else(|| "db/migrate".to_owned());
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await;
    let channel = channel.with_context(|| format!("nobody serves at {address}: is `make run` running?"))?;
    let mut locks = LockServiceClient::new(channel);

    // All locks belong to a lease: if this program dies, its lock is free ten seconds later.
    let grant =
        LeaseGrantRequest { ttl: 10, client_id: "example".to_owned(), ..LeaseGrantRequest::default() };
    let lease_id = locks.lease_grant(grant).await?.into_inner().id;
    println!("lease {lease_id:016x} of 10 s");

    let lock = LockRequest {
        name: name.clone(),
        lease_id,
        timeout_ms: 5_000,
        metadata: "the example".to_owned(),
        ..LockRequest::default()
    };
    let held = locks.lock(lock).await?.into_inner();
    if held.acquired {
        println!("{name} is held with fencing token {}", held.fencing_token);
        println!("a store that is told this token refuses whoever held the lock before");
        let fencing_token = held.fencing_token;
        locks.unlock(UnlockRequest { name, lease_id, fencing_token, ..UnlockRequest::default() }).await?;
        println!("given back");
    } else {
        for holder in held.holders {
            println!(
                "{name} is held by {} ({}), token {}",
                holder.key, holder.metadata, holder.fencing_token
            );
        }
    }
    locks.lease_revoke(LeaseRevokeRequest { id: lease_id }).await?;
    Ok(())
}
