//! How a client behaves. Chances are in percent.

/// The settings of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// The time to live of its leases.
    pub ttl_ms: u64,
    /// How far clock rates may be off, as the client trusts them, in parts per million.
    pub rho_ppm: u32,
    /// How many things it does at once, each as an owner of its own.
    pub tasks: u32,
    /// How many locks all clients fight over.
    pub hot_names: u32,
    /// How many semaphores they do.
    pub semaphores: u32,
    /// How many registers there are.
    pub registers: u32,
    /// The longest rest between two steps of a task.
    pub think_ms_max: u64,
    /// The longest wait that a task asks for.
    pub wait_ms_max: u64,
    /// How often an answer is treated as lost on its way.
    pub answers_lost_percent: u32,
    /// How often a request with a seq goes to two nodes at once.
    pub twice_percent: u32,
    /// How often it goes on writing with the token of a grant that it has lost.
    pub zombie_percent: u32,
    /// How often it takes the lock from who stands in its way.
    pub force_percent: u32,
    /// How often it lets the group choose the id of its lease.
    pub assigned_percent: u32,
    /// How often a wait is cancelled before its time.
    pub cancel_percent: u32,
    /// How often a request for locks comes from a single caller, and not by the session.
    pub single_percent: u32,
    /// How long a caller that vanishes stays away at least.
    pub vanish_us: u64,
    /// How often a client watches locks beside its other work.
    pub watch_percent: u32,
    /// Whether somebody looks for deadlocks over groups.
    pub deadlocks_seen: bool,
}

impl ClientSettings {
    /// A lively client: everything happens now and then.
    pub fn new(ttl_ms: u64, rho_ppm: u32) -> ClientSettings {
        assert!(rho_ppm < 500_000, "rho_ppm is {rho_ppm}: nothing is left to believe in");
        ClientSettings {
            ttl_ms,
            rho_ppm,
            tasks: 3,
            hot_names: 6,
            semaphores: 2,
            registers: 4,
            think_ms_max: 300,
            wait_ms_max: 3_000,
            answers_lost_percent: 3,
            twice_percent: 3,
            zombie_percent: 40,
            force_percent: 2,
            assigned_percent: 15,
            cancel_percent: 25,
            single_percent: 45,
            vanish_us: 8_000_000,
            watch_percent: 40,
            deadlocks_seen: false,
        }
    }
}
