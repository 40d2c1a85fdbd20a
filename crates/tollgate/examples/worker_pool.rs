//! Six workers on any number of machines, at most two of them at work at once: a semaphore, with the blocking client.
//!
//! Start a cluster with `make run`, then `cargo run -p tollgate --example worker_pool`. To use other nodes than those
//! of `make run`, list them in `TOLLGATE_ENDPOINTS`, separated by commas.
//!
//! Holders of permits work side by side, so their tokens do not invalidate each other. They do invalidate the token of
//! a worker that lost its permit before somebody had the pool exclusively: here, the session that closes the books.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tollgate_client::blocking::{Client, Session};
use tollgate_fence::{Fence, FencedToken, Rejected};

const POOL: &str = "pool/importers";
const WORKERS: u32 = 6;
const AT_ONCE: u32 = 2;

/// Stands for the storage that workers write to.
#[derive(Default)]
struct Books {
    inside: Mutex<(Fence, Vec<String>)>,
    open_now: AtomicU32,
    open_most: AtomicU32,
}

impl Books {
    fn write(&self, line: String, token: FencedToken) -> Result<(), Rejected> {
        let mut inside = self.inside.lock();
        inside.0.accept(token)?;
        inside.1.push(line);
        Ok(())
    }

    fn enter(&self) {
        let now = self.open_now.fetch_add(1, Ordering::SeqCst) + 1;
        self.open_most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.open_now.fetch_sub(1, Ordering::SeqCst);
    }
}

fn main() -> Result<()> {
    run(endpoints())?;
    Ok(())
}

/// Runs the example. Returns the highest number of workers that were at work at once.
pub(crate) fn run(endpoints: Vec<String>) -> Result<u32> {
    let client = Client::connect(endpoints)?;
    let session = client.session().ttl(Duration::from_secs(10)).open()?;
    let books = Books::default();
    std::thread::scope(|scope| {
        let (session, books) = (&session, &books);
        let begin = |number| scope.spawn(move || work(number, session, books));
        let workers: Vec<_> = (1..=WORKERS).map(begin).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let most = books.open_most.load(Ordering::SeqCst);
    println!("{WORKERS} jobs are done, at most {most} at once");
    ensure!(most <= AT_ONCE, "the semaphore let too many in");

    // All permits at once: nobody else is inside, and none of the tokens from before is valid any more.
    let all = session.semaphore(POOL, AT_ONCE).acquire(AT_ONCE).why("closing the books").acquire()?;
    books.write("closed".to_owned(), FencedToken::exclusive(all.token()?))?;
    println!("the books are closed with token {}", all.token()?);
    all.release()?;
    session.close()?;
    Ok(most)
}

/// Runs one worker: waits for a permit, does its job, releases the permit.
fn work(number: u32, session: &Session, books: &Books) -> Result<()> {
    let permit = session.semaphore(POOL, AT_ONCE).acquire(1).why(format!("import {number}")).acquire()?;
    books.enter();
    println!(
        "worker {number}: begins with token {} after {} ms",
        permit.token()?,
        permit.waited().as_millis()
    );
    std::thread::sleep(Duration::from_millis(150));
    // The token is read now, not at the beginning: there is none if the permit was lost meanwhile.
    books.write(format!("import {number}"), FencedToken::permit(permit.token()?))?;
    books.leave();
    println!("worker {number}: is done");
    permit.release()?;
    Ok(())
}

fn endpoints() -> Vec<String> {
    let given = std::env::var("TOLLGATE_ENDPOINTS").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    given.split(',').map(str::to_owned).collect()
}
