//! Settings of a client's behaviour. Chances are in percent.

/// The settings of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Time to live of the client's leases.
    pub ttl_ms: u64,
    /// Maximum deviation of clock rates, as the client trusts them, in parts per million.
    pub rho_ppm: u32,
    /// Number of concurrent tasks, each of them an owner of its own.
    pub tasks: u32,
    /// Number of locks that all clients compete for.
    pub hot_names: u32,
    /// Number of semaphores that all clients compete for.
    pub semaphores: u32,
    /// Number of registers.
    pub registers: u32,
    /// The longest usual rest between two steps of a task.
    pub think_ms_max: u64,
    /// The longest wait that a task asks for.
    pub wait_ms_max: u64,
    /// Chance that an answer is treated as lost on its way.
    pub answers_lost_percent: u32,
    /// Chance that a request with a seq goes to two nodes at once.
    pub twice_percent: u32,
    /// Chance that a client goes on writing with the token of a grant that it has lost.
    pub zombie_percent: u32,
    /// Chance that a client that finds a lock busy takes it from the holder by force.
    pub force_percent: u32,
    /// Chance that the group chooses the id of the lease.
    pub assigned_percent: u32,
    /// Chance that a task ends a wait before its time.
    pub cancel_percent: u32,
    /// Chance that a request for locks comes from a single caller, and not from the session.
    pub single_percent: u32,
    /// Minimum time for which a vanished caller stays away.
    pub vanish_us: u64,
    /// Chance that a client watches locks besides its other work.
    pub watch_percent: u32,
    /// True if the world looks for deadlocks over groups.
    pub deadlocks_seen: bool,
}

impl ClientSettings {
    /// Returns the settings of a lively client: everything happens now and then.
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
