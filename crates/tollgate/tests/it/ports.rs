//! Free ports, below those that the system gives to outgoing connections: a restarted node must find its own ports free
//! again.
//!
//! Not here: lost races for a port (`cluster` tries again).

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// Returns a port that is free now, and that no other test of this process gets.
pub(crate) fn take() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Test processes that run at once begin at different ports.
    let begin = std::process::id().wrapping_mul(7_919) % COUNT;
    loop {
        let nth = TAKEN.fetch_add(1, Ordering::Relaxed);
        assert!(nth < COUNT, "no port is free");
        let port = u16::try_from(FIRST + (begin + nth) % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
