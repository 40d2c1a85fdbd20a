//! A cluster of nodes on free ports and in temporary directories.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tollgate_core::{AcquireLock, Command, GrantLease, LeaseChoice, Reply, Wait};
use tollgate_node::{
    Answer, Ask, Bootstrap, Called, Join, NoMeter, Node, NodeClock, NodeHandle, NodeSettings, NodeStatus,
};
use tollgate_replica::{EngineConfig, HostConfig, MemberChange, Members, NodeAddresses, ProposeError};
use tollgate_types::{
    Address, ClientId, ClusterId, DurationMs, GroupId, GroupMap, HostPort, LeaseId, Limits, Metadata, Mode,
    Name, Names, NodeId, Owner,
};

pub(crate) const GROUP: GroupId = GroupId::new(0);

/// Maximum time of any wait: longer than anything should take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) settings: BTreeMap<u64, NodeSettings>,
    ports: BTreeMap<u64, u16>,
    /// Listeners of nodes that were not started yet.
    listeners: BTreeMap<u64, TcpListener>,
    dirs: Vec<TempDir>,
}

pub(crate) fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

impl Cluster {
    pub(crate) fn start(count: u64) -> Cluster {
        let mut cluster = Cluster::prepare(count);
        for number in 1..=count {
            cluster.begin(number);
        }
        cluster
    }

    /// Prepares a cluster without starting its nodes.
    pub(crate) fn prepare(count: u64) -> Cluster {
        let listeners: BTreeMap<u64, TcpListener> =
            (1..=count).map(|number| (number, TcpListener::bind("127.0.0.1:0").unwrap())).collect();
        let ports: BTreeMap<u64, u16> =
            listeners.iter().map(|(number, it)| (*number, it.local_addr().unwrap().port())).collect();
        let peers: BTreeMap<NodeId, String> =
            ports.iter().map(|(number, port)| (node(*number), format!("127.0.0.1:{port}"))).collect();
        let found = |address: &String| NodeAddresses {
            peer: HostPort::new(address).unwrap(),
            ..NodeAddresses::UNKNOWN
        };
        let found = peers.iter().map(|(peer, address)| (*peer, found(address)));
        let members = Members::first((1..=count).map(node), []).found_at(found);
        let (mut settings, mut dirs) = (BTreeMap::new(), Vec::new());
        for number in 1..=count {
            let dir = TempDir::new().unwrap();
            let (map, limits) = (Arc::new(GroupMap::single()), Limits::DEFAULT);
            let bootstrap = Some(Bootstrap { map, members: members.clone(), limits });
            let of = NodeSettings {
                host: HostConfig::new(ClusterId::new(7), node(number)),
                engine: EngineConfig::default(),
                data_dir: dir.path().join("data"),
                peers: peers.clone(),
                bootstrap,
                join: None,
                operations_waiting_max: 100_000,
                clock: NodeClock::system(),
            };
            settings.insert(number, of);
            dirs.push(dir);
        }
        Cluster { nodes: BTreeMap::new(), settings, ports, listeners, dirs }
    }

    /// Starts a node of a cluster that was only prepared.
    pub(crate) fn begin(&mut self, number: u64) {
        let listener = self.listeners.remove(&number).expect("it was not started");
        self.start_on(number, listener);
    }

    fn start_on(&mut self, number: u64, listener: TcpListener) {
        let runtime = tokio::runtime::Handle::current();
        let settings = &self.settings[&number];
        let node = Node::start(settings, listener, Arc::new(NoMeter), &runtime).unwrap();
        self.nodes.insert(number, node);
    }

    /// Restarts a node with its former data and port.
    pub(crate) async fn restart(&mut self, number: u64) {
        let listener = self.listen_as(number).await;
        self.start_on(number, listener);
    }

    /// Listens on the port of a node that does not run.
    pub(crate) async fn listen_as(&self, number: u64) -> TcpListener {
        let address = ("127.0.0.1", self.ports[&number]);
        // The port may stay taken for a moment by connections of the old node.
        let listener = tokio::time::timeout(PATIENCE, async {
            loop {
                match TcpListener::bind(address) {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        listener.await.unwrap()
    }

    /// Prepares a node that is to join, on a free port, and returns its address; the node knows only the addresses that
    /// it is told when it starts.
    pub(crate) fn prepare_newcomer(&mut self, number: u64) -> NodeAddresses {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dir = TempDir::new().unwrap();
        let settings = NodeSettings {
            host: HostConfig::new(ClusterId::new(7), node(number)),
            data_dir: dir.path().join("data"),
            peers: BTreeMap::new(),
            bootstrap: None,
            ..self.settings_of(1)
        };
        self.settings.insert(number, settings);
        self.dirs.push(dir);
        self.ports.insert(number, port);
        self.listeners.insert(number, listener);
        NodeAddresses { peer: HostPort::new(format!("127.0.0.1:{port}")).unwrap(), ..NodeAddresses::UNKNOWN }
    }

    /// Starts a node that was added, with the members as node `told_by` knows them.
    pub(crate) fn begin_newcomer(&mut self, number: u64, told_by: u64) {
        let members = Arc::clone(&self.handle(told_by).status().borrow().members);
        self.begin_newcomer_told(number, &members);
    }

    pub(crate) fn begin_newcomer_told(&mut self, number: u64, members: &Members) {
        let join = Join { groups: vec![GROUP], members: members.clone() };
        self.settings.get_mut(&number).unwrap().join = Some(join);
        self.begin(number);
    }

    /// Configures, for the next start of node `of`, the address of `peer`.
    pub(crate) fn configure_peer(&mut self, of: u64, peer: u64, address: &str) {
        self.settings.get_mut(&of).unwrap().peers.insert(node(peer), address.to_owned());
    }

    /// Has the leader change the members.
    pub(crate) async fn change(&self, change: MemberChange) {
        let done = tokio::time::timeout(PATIENCE, async {
            loop {
                let leader = self.leader().await;
                let ask = Ask::ChangeMembers { group: GROUP, change: Box::new(change.clone()) };
                match self.handle(leader).call(ask).await.map(|called| called.answer) {
                    Ok(Answer::Members(_)) => return,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        done.await.expect("it is changed in time");
    }

    /// Waits until a node's status satisfies a condition.
    pub(crate) async fn until(&self, number: u64, what: &str, knows: impl FnMut(&NodeStatus) -> bool) {
        let mut status = self.handle(number).status().clone();
        let waited = tokio::time::timeout(PATIENCE, status.wait_for(knows)).await;
        assert!(waited.is_ok_and(|waited| waited.is_ok()), "node {number} never knew that {what}");
    }

    pub(crate) fn handle(&self, number: u64) -> &NodeHandle {
        self.nodes[&number].handle()
    }

    pub(crate) fn peer_port(&self, number: u64) -> u16 {
        self.ports[&number]
    }

    pub(crate) fn settings_of(&self, number: u64) -> NodeSettings {
        self.settings[&number].clone()
    }

    /// Waits for a leader that serves, and returns it.
    pub(crate) async fn leader(&self) -> u64 {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let serves = |number: &&u64| self.handle(**number).status().borrow().serves(GROUP);
                if let Some(leader) = self.nodes.keys().find(serves) {
                    return *leader;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        found.await.expect("somebody leads in time")
    }

    /// Has the leader carry out a command that may be repeated.
    pub(crate) async fn command(&self, command: Command) -> Called {
        let done = tokio::time::timeout(PATIENCE, async {
            loop {
                let leader = self.leader().await;
                let ask = Ask::Command { group: GROUP, command: Box::new(command.clone()), fast: true };
                let Ok(called) = self.handle(leader).call(ask).await else { continue };
                let again = matches!(
                    called.answer,
                    Answer::NotDone(ProposeError::NotLeader { .. } | ProposeError::Indeterminate { .. })
                        | Answer::AskAgain { .. }
                );
                if !again {
                    return called;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        done.await.expect("it is answered in time")
    }

    pub(crate) async fn reply(&self, command: Command) -> Reply {
        match self.command(command).await.answer {
            Answer::Replied { reply, .. } | Answer::Busy { reply, .. } => reply,
            Answer::NotDone(error) => panic!("{error}"),
            _ => panic!("not a reply"),
        }
    }
}

pub(crate) fn lease(number: u64) -> LeaseId {
    LeaseId::new(number).unwrap()
}

pub(crate) fn grant(number: u64, ttl_ms: u64) -> Command {
    Command::GrantLease(GrantLease {
        id: LeaseChoice::Chosen(lease(number)),
        ttl: DurationMs::from_ms(ttl_ms),
        client_id: ClientId::new("test").unwrap(),
        address: Address::NONE,
        revoke_on_disconnect: false,
    })
}

pub(crate) fn acquire(name: &str, of: u64, wait: Wait) -> Command {
    Command::AcquireLock(AcquireLock {
        names: Names::One(Name::new(name).unwrap()),
        lease: lease(of),
        owner: Owner::LEASE,
        mode: Mode::Exclusive,
        wait,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::NONE,
        value: None,
        attended: false,
        request: None,
    })
}
