//! A node: the replicas of all groups on this machine, driven by threads and wired to disk and peers.
//!
//! One thread takes turns with the host, one makes log writes durable, one works on snapshot files, and tasks carry
//! frames between nodes. The lowest crate that uses async, and only at the edges: between the sockets and the driver
//! stands one bounded inbox. Not here: the decisions (`tollgate_core`, `tollgate_replica`), and the protocols for
//! clients (`tollgate_server`).

mod ask;
mod caller;
mod clock;
mod clock_monitor;
mod clock_rate;
mod clock_verdict;
mod disk;
mod driver;
mod fault;
mod inbox;
mod lock_log;
mod meter;
mod node;
mod peer_registry;
mod peers;
#[doc(hidden)]
pub mod planted;
mod settings;
mod status;

pub use ask::{Ask, Consistency, Look, Sight};
pub use caller::{Answer, Caller, Sink};
pub use clock::{Clock, ClockSampling, NodeClock, SystemClock};
pub use clock_verdict::{ClockRates, ClockVerdict};
pub use fault::Fault;
pub use inbox::NotTaken;
pub use meter::{Meter, NoMeter};
pub use node::{Called, Node, NodeHandle, NotAllTaken, NotAnswered, StartError, found, has_data};
pub use settings::{Bootstrap, Join, NodeSettings};
pub use status::{GroupStatus, NodeStatus};
