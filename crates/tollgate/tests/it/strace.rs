//! Misbehaving disks by means of strace, which stands between a running node and its system calls.
//!
//! Without strace, or without the right to trace, a test fails and says what to do: it would prove nothing.

use crate::cluster::Node;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Injects errors into the system calls of a node, until it is dropped.
pub(crate) struct Tampering(Child);

impl Tampering {
    /// Tampers with every fsync of a node from now on; `how` is an argument of strace's `inject`: `error=EIO`,
    /// `delay_enter=1000` (microseconds).
    pub(crate) fn with_fsync(node: &Node, how: &str) -> Tampering {
        Tampering::with(node, "fsync,fdatasync", how)
    }

    /// Makes the log run out of space from now on. Messages to a terminal and to other threads are not written with
    /// these calls.
    pub(crate) fn with_room(node: &Node) -> Tampering {
        Tampering::with(node, "pwrite64,fallocate", "error=ENOSPC")
    }

    fn with(node: &Node, calls: &str, how: &str) -> Tampering {
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &node.pid().to_string(), "-o", "/dev/null", "-e"]);
        command.args([&format!("trace={calls}"), "-e", &format!("inject={calls}:{how}")]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let advice = "install it (apt-get install strace); it must be allowed to trace: as root, or with \
                      kernel.yama.ptrace_scope = 0, and in a container with the capability SYS_PTRACE";
        let mut child = command.spawn().unwrap_or_else(|error| panic!("no strace: {error}: {advice}"));
        let mut lines = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
        let says = lines.next().and_then(Result::ok).unwrap_or_default();
        assert!(says.contains("attached"), "strace says {says:?}: {advice}");
        // Otherwise strace would block when nobody reads its messages about new threads.
        std::thread::spawn(move || lines.count());
        Tampering(child)
    }
}

impl Drop for Tampering {
    fn drop(&mut self) {
        // SIGINT makes strace detach from the node.
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}
