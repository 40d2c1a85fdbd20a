//! Finds the processes on this machine that serve at given addresses, to measure their processor time.
//!
//! Only processes that this process may inspect are found; servers on other machines or of other users are left out.
//! Not here: the processor time that they use (`cpu`).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// State of a listening socket, in the kernel's table.
const LISTENS: &str = "0A";

/// Returns the processes that listen at these addresses (`http://127.0.0.1:7400`), as far as they are on this machine.
pub fn pids_of_listeners(endpoints: &[String]) -> Vec<u32> {
    let ports: BTreeSet<u16> = endpoints.iter().filter_map(|endpoint| loopback_port(endpoint)).collect();
    if ports.is_empty() {
        return Vec::new();
    }
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let inodes: BTreeSet<String> = tables.iter().flat_map(|table| inodes(table, &ports)).collect();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut found: Vec<u32> = pids.filter(|pid| has_socket(*pid, &inodes)).collect();
    found.sort_unstable();
    found
}

/// Returns the port of an endpoint, or none if the endpoint is not a loopback address.
fn loopback_port(endpoint: &str) -> Option<u16> {
    let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let (host, port) = address.rsplit_once(':')?;
    let here = match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    };
    if here { port.parse().ok() } else { None }
}

/// Returns the inode numbers of the sockets that listen at these ports.
fn inodes(table: &str, ports: &BTreeSet<u16>) -> Vec<String> {
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let wanted = *fields.get(3)? == LISTENS && ports.contains(&u16::from_str_radix(port, 16).ok()?);
        wanted.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn has_socket(pid: u32, inodes: &BTreeSet<String>) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        assert_eq!(pids_of_listeners(&[endpoint]), [std::process::id()]);
        assert_eq!(pids_of_listeners(&["http://10.0.0.1:7400".to_owned()]), [0; 0]);
    }

    #[test]
    fn only_addresses_of_this_machine_count() {
        assert_eq!(loopback_port("http://127.0.0.1:7400/"), Some(7400));
        assert_eq!(loopback_port("localhost:7410"), Some(7410));
        assert_eq!(loopback_port("http://[::1]:7420"), Some(7420));
        assert_eq!(loopback_port("http://10.0.0.1:7400"), None);
        assert_eq!(loopback_port("http://db.example:7400"), None);
        assert_eq!(loopback_port("nonsense"), None);
    }

    #[test]
    fn sockets_that_listen_are_told_from_those_that_talk() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1CE8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n\
             1: 0100007F:1CE8 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n\
             2: 0100007F:1CE9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0\n";
        assert_eq!(inodes(table, &BTreeSet::from([7400])), ["4711"]);
    }
}
