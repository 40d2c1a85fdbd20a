//! The environment: `TOLLGATE_` + section + `_` + key, in upper case.
//!
//! A variable that seems to be meant for the server, but is not one of its keys, is refused, because a setting that is
//! silently not in force is worse than a server that does not start. Other variables with the prefix are ignored: those
//! of clients, and those that container platforms derive from a service's name.

use super::keys::{ENV_PREFIX, Key};
use super::layers::Layers;
use super::origin::Origin;
use super::problem::{Place, Problem, Wrong};
use super::spelling::nearest;
use std::ffi::OsString;

/// Variables that clients read, or that `run` sets for its child.
pub const CLIENT_VARIABLES: [&str; 9] = [
    "TOLLGATE_ENDPOINTS",
    "TOLLGATE_LOCK_NAME",
    "TOLLGATE_FENCING_TOKEN",
    "TOLLGATE_LINEAGE",
    "TOLLGATE_LEASE_ID",
    "TOLLGATE_OWNER",
    "TOLLGATE_DEADLINE_UNIX_MS",
    "TOLLGATE_HELD",
    "TOLLGATE_RUNS",
];

pub(crate) fn read_into(variables: &[(OsString, OsString)], layers: &mut Layers) {
    for (name, value) in variables {
        // A name that is not UTF-8 is not one of ours.
        let Some(name) = name.to_str().filter(|name| name.starts_with(ENV_PREFIX)) else { continue };
        if CLIENT_VARIABLES.contains(&name) {
            continue;
        }
        let place = Place::Env { name: name.to_owned(), value: value.to_string_lossy().into_owned() };
        match (layers.table.keys.iter().find(|key| key.env() == name), value.to_str()) {
            (Some(key), Some(text)) => {
                layers.read_text(key, text, Origin::Env { name: name.to_owned() }, place);
            }
            (Some(key), None) => {
                let wrong = Wrong::new("is not UTF-8", format!("set {name} to UTF-8 text"));
                layers.refuse(key, Problem::new(place, key.path(), wrong));
            }
            (None, value) => judge_unknown(name, value.unwrap_or_default(), place, layers),
        }
    }
}

fn judge_unknown(name: &str, value: &str, place: Place, layers: &mut Layers) {
    let begins = |section: &&(&str, &str)| name.starts_with(&prefix_of(section.0));
    let section = layers.table.sections.iter().find(begins).map(|(section, _)| *section);
    // The common prefix is left out of the comparison: it is right in all variables, and says nothing about the rest.
    let shared = section.map_or(ENV_PREFIX.to_owned(), prefix_of);
    let known: Vec<String> = layers.table.keys.iter().map(Key::env).collect();
    let near = nearest(&name[shared.len()..], known.iter().filter_map(|known| known.strip_prefix(&shared)));
    if is_service_link(name, value) || (near.is_none() && section.is_none()) {
        return;
    }
    let advice = match near {
        Some(near) => format!("did you mean {shared}{near}?"),
        None => "unset it, or see `config show` for the keys there are".to_owned(),
    };
    layers.complain(Problem::new(place, name, Wrong::new("sets no key", advice)));
}

/// Returns the common prefix of a section's variables.
fn prefix_of(section: &str) -> String {
    format!("{ENV_PREFIX}{section}_").to_uppercase()
}

/// True for a variable that Kubernetes sets in every container for each service: for a service named `tollgate-server`,
/// `TOLLGATE_SERVER_SERVICE_HOST`, `TOLLGATE_SERVER_PORT` and `TOLLGATE_SERVER_PORT_7400_TCP_ADDR`.
fn is_service_link(name: &str, value: &str) -> bool {
    let after_port = name.split_once("_PORT_").map(|(_, rest)| rest);
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || after_port.is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        || name.ends_with("_PORT") && value.contains("://")
}
