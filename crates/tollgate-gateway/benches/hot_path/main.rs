//! Locks and unlocks from the bytes of a client's frame to the bytes of its answer, on three replicas in one thread.
//!
//! Runs all the code of this project that an operation needs, and nothing else: no disk, no socket, no other thread, no
//! clock. The number of instructions is therefore the same in every run, and `cargo xtask hot-path` can tell whether a
//! change increased it. The first argument is the number of operations, the second the number of clients that ask at
//! once, the third which notes on locks are taken: 0 none, 1 losses (the default), 2 all.

mod clients;
mod cluster;
#[path = "../../../tollgate-replica/tests/it/memory.rs"]
mod memory;

use clients::Clients;
use cluster::Cluster;
use tollgate_core::Noting;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    // Without arguments (`cargo bench` passes one of its own) the benchmark does a little of everything, as a smoke
    // test.
    let (operations, clients) = (numbers.next().unwrap_or(1_000), numbers.next().unwrap_or(64));
    let noting = match numbers.next() {
        Some(0) => Noting::Nothing,
        Some(2) => Noting::All,
        _ => Noting::Losses,
    };
    let mut cluster = Cluster::new(noting);
    let mut clients = Clients::new(clients);
    clients.grant(&mut cluster);
    let mut left = operations;
    while left > 0 {
        let asked = clients.len().min(left);
        let answers = cluster.carry_out(&clients.ask(asked), asked);
        clients.hear(&answers);
        left -= asked;
    }
}
