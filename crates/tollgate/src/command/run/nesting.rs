//! The environment of a command of `run`, and the way a nested `run` shares the lease of the outer one.
//!
//! Several runs may be nested in one at a time. Invariant: only a lock that an outer run holds is taken again under the
//! owner that holds it; any other lock is requested by an owner of the run's own, or nested runs would share it and not
//! exclude each other.

use crate::exit::{Exit, WithExit};
use crate::globals::{ENDPOINTS_VARIABLE, Globals};
use crate::lease_id;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate_client::{LeaseId, Lineage, Token};

const LOCK_NAME: &str = "TOLLGATE_LOCK_NAME";
const FENCING_TOKEN: &str = "TOLLGATE_FENCING_TOKEN";
const LEASE_ID: &str = "TOLLGATE_LEASE_ID";
const LINEAGE: &str = "TOLLGATE_LINEAGE";
const OWNER: &str = "TOLLGATE_OWNER";
const DEADLINE: &str = "TOLLGATE_DEADLINE_UNIX_MS";
const HELD: &str = "TOLLGATE_HELD";

/// The `run` around this one, with the runs around that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    pub(crate) lease: LeaseId,
    /// Names of held locks, with the owner of each.
    held: Vec<(String, String)>,
}

impl Outer {
    /// Finds the outer run; `None` if there is none, or if it uses another cluster.
    pub(crate) fn find(globals: &Globals) -> anyhow::Result<Option<Outer>> {
        let its_endpoints = std::env::var(ENDPOINTS_VARIABLE).ok();
        if its_endpoints.is_some_and(|its| its != globals.endpoints.join(",")) {
            return Ok(None);
        }
        Outer::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Outer>> {
        let (Some(lease), Some(owner)) = (variable(LEASE_ID), variable(OWNER)) else { return Ok(None) };
        let lease = lease_id::parse(&lease).map_err(|error| {
            let says = format!("{LEASE_ID}={lease} {error}; unset it, or give --own-lease");
            WithExit(Exit::Usage, says)
        })?;
        let of_all = variable(HELD).and_then(|held| read_held(&held, lease));
        // Without the list, because somebody set the variables by hand or because the list is about another lease, only
        // one lock is known.
        let of_one = || variable(LOCK_NAME).map(|name| (name, owner)).into_iter().collect();
        Ok(Some(Outer { lease, held: of_all.unwrap_or_else(of_one) }))
    }

    /// Returns the owner under which an outer run holds the lock, if one does.
    pub(crate) fn owner_of(&self, name: &str) -> Option<&str> {
        self.held.iter().find(|(held, _)| held == name).map(|(_, owner)| owner.as_str())
    }
}

/// Returns the locks held under the lease, if the text is about that lease.
fn read_held(text: &str, lease: LeaseId) -> Option<Vec<(String, String)>> {
    let held: Value = serde_json::from_str(text).ok()?;
    if lease_id::parse(held["lease_id"].as_str()?) != Ok(lease) {
        return None;
    }
    let field = |lock: &Value, name: &str| lock[name].as_str().map(str::to_owned);
    held["locks"].as_array()?.iter().map(|lock| Some((field(lock, "name")?, field(lock, "owner")?))).collect()
}

fn write_held(lease: LeaseId, held: &[(String, String)]) -> String {
    let locks: Vec<Value> = held.iter().map(|(name, owner)| json!({"name": name, "owner": owner})).collect();
    json!({"lease_id": lease.to_string(), "locks": locks}).to_string()
}

/// Returns the variables that tell a command about its lock. The deadline is a snapshot: it moves while the lease is
/// renewed, and the command is ended before the last one passes.
pub(crate) fn environment(
    globals: &Globals,
    outer: Option<&Outer>,
    name: &str,
    (token, lineage): (Token, Option<Lineage>),
    lease: LeaseId,
    owner: &str,
    remaining: Duration,
) -> Vec<(&'static str, String)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let around = outer.map_or(&[][..], |outer| &outer.held);
    let mut held: Vec<_> = around.iter().filter(|(around, _)| around != name).cloned().collect();
    held.push((name.to_owned(), owner.to_owned()));
    vec![
        (LOCK_NAME, name.to_owned()),
        (FENCING_TOKEN, token.to_string()),
        // Empty, so that the command does not inherit the value of an outer run.
        (LINEAGE, lineage.map_or_else(String::new, |lineage| lineage.to_string())),
        (LEASE_ID, lease.to_string()),
        (OWNER, owner.to_owned()),
        (HELD, write_held(lease, &held)),
        (DEADLINE, (now + remaining).as_millis().to_string()),
        (ENDPOINTS_VARIABLE, globals.endpoints.join(",")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Option<Outer> {
        let value = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, v)| (*v).to_owned());
        Outer::read(value).unwrap()
    }

    #[test]
    fn what_those_around_hold_is_known_by_name() {
        let lease = LeaseId::new(0x1234).unwrap();
        let held = [("a \"b\"\n".to_owned(), "~1".to_owned()), ("c".to_owned(), "~2f".to_owned())];
        let held = write_held(lease, &held);
        let outer = read(&[(LEASE_ID, &lease.to_string()), (OWNER, "~2f"), (LOCK_NAME, "c"), (HELD, &held)]);
        let outer = outer.unwrap();
        assert_eq!(outer.owner_of("a \"b\"\n"), Some("~1"));
        assert_eq!((outer.owner_of("c"), outer.owner_of("d")), (Some("~2f"), None));
    }

    /// Otherwise a server would refuse to start under a `run`.
    #[test]
    fn a_server_knows_all_that_a_command_finds_in_its_environment() {
        let ours = [
            LOCK_NAME,
            FENCING_TOKEN,
            LINEAGE,
            LEASE_ID,
            OWNER,
            DEADLINE,
            HELD,
            super::super::run_id::VARIABLE,
        ];
        for name in ours.iter().chain(&[ENDPOINTS_VARIABLE]) {
            assert!(tollgate_server::config::CLIENT_VARIABLES.contains(name), "{name}");
        }
    }

    #[test]
    fn without_a_list_of_this_lease_the_one_lock_counts() {
        let other = write_held(LeaseId::new(9).unwrap(), &[("x".to_owned(), "~9".to_owned())]);
        for held in ["nonsense", &other] {
            let outer =
                read(&[(LEASE_ID, "L-0000000000000007"), (OWNER, "~1"), (LOCK_NAME, "c"), (HELD, held)])
                    .unwrap();
            assert_eq!((outer.owner_of("c"), outer.owner_of("x")), (Some("~1"), None), "{held}");
        }
        assert_eq!(read(&[(LEASE_ID, "L-0000000000000007")]), None);
    }
}
