//! Three instances of a program start at once; one of them changes the schema, the others wait and find it done.
//!
//! Start a cluster with `make run`, then `cargo run -p tollgate --example migration`. To use other nodes than those of
//! `make run`, list them in `TOLLGATE_ENDPOINTS`, separated by commas.
//!
//! The database requires the fencing token with every statement: an instance that was paused for so long that it lost
//! the lock without knowing is refused.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use anyhow::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tollgate_client::{Client, Token};
use tollgate_fence::{Fence, FencedToken, Rejected};

/// The schema that this version of the program wants.
const WANTED: u32 = 3;

/// Stands for a database: a schema, and a fence in the same place, so that one step checks and writes.
#[derive(Default)]
struct Database {
    inside: Mutex<(Fence, u32)>,
}

impl Database {
    fn schema(&self) -> u32 {
        self.inside.lock().1
    }

    fn migrate(&self, to: u32, token: Token) -> Result<(), Rejected> {
        let mut inside = self.inside.lock();
        inside.0.accept(FencedToken::exclusive(token))?;
        inside.1 = to;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    run(endpoints()).await?;
    Ok(())
}

/// Runs the example. Returns the number of steps that each of three instances did, and the final schema.
pub(crate) async fn run(endpoints: Vec<String>) -> Result<(Vec<u32>, u32)> {
    let database = Arc::new(Database::default());
    let instances = ["app-1", "app-2", "app-3"]
        .map(|name| tokio::spawn(start(name, endpoints.clone(), Arc::clone(&database))));
    let mut steps = Vec::new();
    for instance in instances {
        steps.push(instance.await??);
    }
    println!("the schema is at version {}", database.schema());
    Ok((steps, database.schema()))
}

/// Starts an instance, up to the point where it would serve. Returns the number of migration steps that it did.
async fn start(name: &'static str, endpoints: Vec<String>, database: Arc<Database>) -> Result<u32> {
    let client = Client::builder().endpoints(endpoints).client_id(name).connect().await?;
    let session = client.session().ttl(Duration::from_secs(10)).open().await?;
    println!("{name}: waits for the lock db/migrate");
    let why = format!("schema v{WANTED}");
    let guard = session.lock("db/migrate").wait(Duration::from_secs(30)).why(why).acquire().await?;
    println!("{name}: has it, with token {}", guard.token()?);

    // Read only now: before, another instance may have been migrating.
    let from = database.schema();
    if from == WANTED {
        println!("{name}: finds the schema at v{WANTED}, nothing to do");
    }
    for version in from + 1..=WANTED {
        // Cancelled in the middle if the lock is lost. The fence refuses a write that comes too late.
        guard.run(tokio::time::sleep(Duration::from_millis(200))).await?;
        database.migrate(version, guard.token()?)?;
        println!("{name}: migrated to v{version}");
    }
    guard.release().await?;
    session.close().await?;
    Ok(WANTED - from)
}

fn endpoints() -> Vec<String> {
    let given = std::env::var("TOLLGATE_ENDPOINTS").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    given.split(',').map(str::to_owned).collect()
}
