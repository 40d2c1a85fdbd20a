//! Command-line arguments: the services, the figures, and the durations and numbers of measurements.

use crate::contender::Kind;
use crate::figure::{Figure, Theme};
use anyhow::bail;
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

/// Tollgate beside other lock services: the same load on each, on one machine.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate-bench-compare",
    after_help = "\
Examples:
  tollgate-bench-compare                                            everything, in about an hour
  tollgate-bench-compare --figures pairs --clients 64 --rounds 1    one figure of each
  tollgate-bench-compare --peers tollgate,etcd --figures kill,stop
  tollgate-bench-compare --document docs/benchmarks.md              the page, and charts in docs/benchmarks/"
)]
pub(crate) struct Arguments {
    /// Services to compare
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Kind::ALL)]
    pub(crate) peers: Vec<Kind>,

    /// Figures to measure
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Theme::ALL)]
    pub(crate) figures: Vec<Theme>,

    /// Clients that lock and unlock at once: a figure for each number
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1_usize, 64, 256, 1024])]
    pub(crate) clients: Vec<usize>,

    /// Clients that lock and unlock with a connection of their own each: a figure for each number
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [16_usize, 256])]
    pub(crate) apart_clients: Vec<usize>,

    /// Clients that wait for one key
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) waiters: usize,

    /// Clients that renew leases, or are granted some, at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) lease_clients: usize,

    /// Connections shared by the clients of other figures, as by the tasks of a program; never more than there are
    /// clients
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) connections: usize,

    /// Seconds that each figure is measured, in each round
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) seconds: u64,

    /// Seconds that each figure runs before it is measured
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) warmup_seconds: u64,

    /// Number of rounds, in each of which everything is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: u32,

    /// Number of times the leader is lost in each round, in each way
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) losses: u32,

    /// The binary of Tollgate
    #[arg(long, value_name = "FILE", default_value = "target/release/tollgate")]
    pub(crate) tollgate: PathBuf,

    /// Write the page to this file, and charts to a directory of the same name without the extension
    #[arg(long, value_name = "FILE")]
    pub(crate) document: Option<PathBuf>,

    /// Remark about the machine for readers of the page
    #[arg(long, value_name = "TEXT")]
    pub(crate) remark: Option<String>,
}

impl Arguments {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.rounds == 0 || self.seconds == 0 || self.losses == 0 || self.connections == 0 {
            bail!("--rounds, --seconds, --losses and --connections must be 1 or more");
        }
        let no_clients = self.clients.contains(&0) || self.apart_clients.contains(&0);
        if no_clients || self.lease_clients == 0 || self.waiters < 2 {
            bail!("--clients, --apart-clients and --lease-clients must be 1 or more, --waiters 2 or more");
        }
        if self.peers.contains(&Kind::Tollgate) && !self.tollgate.is_file() {
            bail!("{} is not there: build it, or name another with --tollgate", self.tollgate.display());
        }
        Ok(())
    }

    /// Returns all figures, in order.
    pub(crate) fn all_figures(&self) -> Vec<Figure> {
        let of = |theme: &Theme| match theme {
            Theme::Pairs => self.clients.iter().map(|clients| Figure::Pairs { clients: *clients }).collect(),
            Theme::Apart => {
                self.apart_clients.iter().map(|clients| Figure::Apart { clients: *clients }).collect()
            }
            Theme::Handoff => vec![Figure::Handoff { waiters: self.waiters }],
            Theme::Keepalives => vec![Figure::Keepalives { clients: self.lease_clients }],
            Theme::Grants => vec![Figure::Grants { clients: self.lease_clients }],
            Theme::Kill => vec![Figure::Kill],
            Theme::Stop => vec![Figure::Stop],
        };
        self.figures.iter().flat_map(of).collect()
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn warmup(&self) -> Duration {
        Duration::from_secs(self.warmup_seconds)
    }

    /// Returns the number of connections for this number of clients.
    pub(crate) fn connections_of(&self, clients: usize) -> usize {
        self.connections.min(clients)
    }
}
