//! The limit of open files, and the number of connections that fit it.
//!
//! A connection is an open file, and so is the log: a node that runs out of files because of its clients can't write
//! and stops. So the ports accept no more connections than fit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Files reserved for logs, snapshots, other nodes and the rest.
const RESERVED: u64 = 512;

/// Maximum number of connections at each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doors {
    pub(crate) client: usize,
    pub(crate) http: usize,
}

/// Raises the process's limit of open files as far as the system allows. Most systems start programs with a low limit,
/// for the sake of older programs.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If that is not allowed, the present limit has to do.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Returns as many connections as are wanted, or as fit; logs if fewer fit.
pub(crate) fn doors(connections_max: usize) -> Doors {
    let limit = getrlimit(Resource::Nofile).current;
    let doors = divide(connections_max, limit);
    if doors.client < connections_max {
        tracing::info!(
            open_files_max = limit,
            connections_max,
            fit = doors.client,
            "fewer connections fit than server.connections_max says: raise the limit of open files (ulimit -n)"
        );
    }
    doors
}

/// Divides the files: three quarters of those that are not reserved are for clients. `open_files_max` of None means no
/// limit.
fn divide(connections_max: usize, open_files_max: Option<u64>) -> Doors {
    let left = open_files_max.map_or(u64::MAX, |limit| limit.saturating_sub(RESERVED));
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    Doors {
        client: connections_max.min((left - left / 4).max(1)),
        http: connections_max.min((left / 4).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_as_wide_as_wanted_or_as_fits() {
        assert_eq!(divide(20_000, None), Doors { client: 20_000, http: 20_000 });
        assert_eq!(divide(20_000, Some(1 << 20)), Doors { client: 20_000, http: 20_000 });
        assert_eq!(divide(20_000, Some(4_512)), Doors { client: 3_000, http: 1_000 });
        assert_eq!(divide(100, Some(10)), Doors { client: 1, http: 1 });
    }
}
