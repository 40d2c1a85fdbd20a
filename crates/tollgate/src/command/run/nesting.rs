//! What a command of `run` knows of its lock, and how a `run` inside it goes on with the same lease.

use crate::exit::{Exit, WithExit};
use crate::globals::{ENDPOINTS_VARIABLE, Globals};
use crate::lease_id;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate_client::{LeaseId, Token};

const LOCK_NAME: &str = "TOLLGATE_LOCK_NAME";
const FENCING_TOKEN: &str = "TOLLGATE_FENCING_TOKEN";
const LEASE_ID: &str = "TOLLGATE_LEASE_ID";
const OWNER: &str = "TOLLGATE_OWNER";
const DEADLINE: &str = "TOLLGATE_DEADLINE_UNIX_MS";

/// The `run` around this one.
#[derive(Debug)]
pub(crate) struct Outer {
    pub(crate) lease: LeaseId,
    pub(crate) owner: String,
}

impl Outer {
    /// None if there is none, or if it talks to another cluster.
    pub(crate) fn find(globals: &Globals) -> anyhow::Result<Option<Outer>> {
        let (Ok(lease), Ok(owner)) = (std::env::var(LEASE_ID), std::env::var(OWNER)) else { return Ok(None) };
        let its_endpoints = std::env::var(ENDPOINTS_VARIABLE).ok();
        if its_endpoints.is_some_and(|its| its != globals.endpoints.join(",")) {
            return Ok(None);
        }
        let lease = lease_id::parse(&lease).map_err(|error| {
            let says = format!("{LEASE_ID}={lease} {error}; unset it, or give --own-lease");
            WithExit(Exit::Usage, says)
        })?;
        Ok(Some(Outer { lease, owner }))
    }
}

/// What a command can know of what it runs under. The deadline is that of the moment: it moves while the lease is
/// renewed, and the command is ended before the last one passes.
pub(crate) fn environment(
    globals: &Globals,
    name: &str,
    token: Token,
    lease: LeaseId,
    owner: &str,
    remaining: Duration,
) -> Vec<(&'static str, String)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    vec![
        (LOCK_NAME, name.to_owned()),
        (FENCING_TOKEN, token.to_string()),
        (LEASE_ID, lease.to_string()),
        (OWNER, owner.to_owned()),
        (DEADLINE, (now + remaining).as_millis().to_string()),
        (ENDPOINTS_VARIABLE, globals.endpoints.join(",")),
    ]
}
