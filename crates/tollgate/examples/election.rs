//! Three candidates, one leader: it dies, another takes over, and a late write of the first one is refused.
//!
//! Start a cluster with `make run`, then `cargo run -p tollgate --example election`. To use other nodes than those of
//! `make run`, list them in `TOLLGATE_ENDPOINTS`, separated by commas.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;
use tollgate_client::{Client, Token};
use tollgate_fence::{Fence, FencedToken, Rejected};

const ELECTION: &str = "scheduler/leader";

/// Stands for the storage that the leader writes to.
#[derive(Default)]
struct Plan {
    inside: Mutex<(Fence, String)>,
}

impl Plan {
    fn write(&self, plan: String, token: Token) -> Result<(), Rejected> {
        let mut inside = self.inside.lock();
        inside.0.accept(FencedToken::exclusive(token))?;
        inside.1 = plan;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    run(endpoints()).await?;
    Ok(())
}

/// Runs the example. Returns true if the late write of the first leader was refused.
pub(crate) async fn run(endpoints: Vec<String>) -> Result<bool> {
    let plan = Arc::new(Plan::default());
    let observer = Client::connect(&endpoints).await?;
    let watching = tokio::spawn(observe(observer.clone()));

    // The first candidate is elected at once, and dies in office; the others take over, one after the other.
    let first = tokio::spawn(candidate("node-1", endpoints.clone(), Arc::clone(&plan)));
    while observer.election(ELECTION).leader().await?.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let others =
        ["node-2", "node-3"].map(|name| tokio::spawn(candidate(name, endpoints.clone(), Arc::clone(&plan))));
    let (mut highest, refused) = first.await??;
    for other in others {
        highest = highest.max(other.await??.0);
    }
    watching.abort();
    let written = plan.inside.lock().1.clone();
    println!("the plan in force: {written}");
    ensure!(written.ends_with(&highest.to_string()), "the last leader's plan is not in force");
    Ok(refused)
}

/// Leads once. Returns the token of its term, and true if one of its writes was refused.
async fn candidate(name: &'static str, endpoints: Vec<String>, plan: Arc<Plan>) -> Result<(Token, bool)> {
    let client = Client::builder().endpoints(endpoints).client_id(name).connect().await?;
    let session = client.session().ttl(Duration::from_secs(2)).open().await?;
    let leadership = session.campaign(ELECTION).value(format!("{name}:9000")).stand().await?;
    let token = leadership.token()?;
    plan.write(format!("of {name}, token {token}"), token)?;
    println!("{name}: leads and has written its plan with token {token}");
    if name != "node-1" {
        leadership.run(tokio::time::sleep(Duration::from_millis(300))).await?;
        println!("{name}: steps down");
        leadership.resign().await?;
        session.close().await?;
        return Ok((token, false));
    }
    // An operator ends the leader's lease. The leader does not check before it writes, as real programs don't.
    leadership.run(tokio::time::sleep(Duration::from_millis(300))).await?;
    client.leases().revoke(session.lease_id()).await?;
    println!("{name}: leads no more: {}", leadership.lost().await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let late = plan.write(format!("of {name}, late"), token);
    match &late {
        Ok(()) => println!("{name}: nobody else has written yet, so its token still counted"),
        Err(refused) => println!("{name}: writes late and is refused: {refused}"),
    }
    Ok((token, late.is_err()))
}

/// Prints every change of leaders.
async fn observe(client: Client) -> Result<()> {
    let mut leaders = client.election(ELECTION).observe();
    while let Some(leader) = leaders.next().await {
        match leader? {
            Some(leader) => {
                let at = String::from_utf8_lossy(&leader.value).into_owned();
                println!("observer: {} leads, at {at}, token {}", leader.client_id, leader.token);
            }
            None => println!("observer: nobody leads"),
        }
    }
    Ok(())
}

fn endpoints() -> Vec<String> {
    let given = std::env::var("TOLLGATE_ENDPOINTS").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    given.split(',').map(str::to_owned).collect()
}
