//! Locks and unlocks from the bytes of a client's frame to the bytes of its answer, on three replicas in one thread.
//!
//! Everything that is done for an operation by the code of this project, and nothing else: no disk, no socket, no other
//! thread, no clock. So it takes the same instructions each time, and `cargo xtask hot-path` can tell whether a change
//! made them more. The first argument is how many operations, the second how many clients ask at once, the third what
//! is noted of what happens to locks: 0 nothing, 1 losses (if it is left out), 2 everything.

mod clients;
mod cluster;
#[path = "../../../tollgate-replica/tests/it/memory.rs"]
mod memory;

use clients::Clients;
use cluster::Cluster;
use tollgate_core::Noting;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    // Without arguments (`cargo bench` passes one of its own) a little of everything, to see that it runs.
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
