//! The id of a run, which the processes of its command have in their environment, and by which they are found.
//!
//! Processes can leave their group and lose their parents, but few change the environment that they began with, which
//! the system shows to everybody who may signal them. Not here: the search for such processes (`search`).

use std::hash::{BuildHasher, Hasher, RandomState};

/// Environment variable with the ids of the runs around a process, outermost first.
pub(crate) const VARIABLE: &str = "TOLLGATE_RUNS";

/// A number that no other run has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunId(String);

impl RunId {
    pub(crate) fn new() -> RunId {
        // Random enough to be unique; nothing depends on its being hard to guess.
        RunId(format!("{:016x}", RandomState::new().build_hasher().finish()))
    }

    /// True if this process was started under a run.
    pub(crate) fn is_inside() -> bool {
        std::env::var_os(VARIABLE).is_some_and(|around| !around.is_empty())
    }

    pub(crate) fn from_text(text: &str) -> RunId {
        RunId(text.to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the variable for the command: the runs around this one, and this one.
    pub(crate) fn environment(&self) -> (&'static str, String) {
        let around = std::env::var(VARIABLE).ok().filter(|around| !around.is_empty());
        (VARIABLE, around.map_or_else(|| self.0.clone(), |around| format!("{around},{}", self.0)))
    }

    /// True if a process with this environment was started under the run.
    pub(crate) fn is_in(&self, environment: &[u8]) -> bool {
        let runs = environment.split(|byte| *byte == 0).find_map(|variable| {
            variable.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        });
        runs.is_some_and(|runs| runs.split(|byte| *byte == b',').any(|run| run == self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_among_those_around_a_process() {
        let run = RunId::from_text("b2");
        assert!(run.is_in(b"PATH=/bin\0TOLLGATE_RUNS=a1,b2\0X=1\0"));
        assert!(run.is_in(b"TOLLGATE_RUNS=b2"));
        for other in [&b"TOLLGATE_RUNS=a1,b22"[..], b"NOT_TOLLGATE_RUNS=b2", b"TOLLGATE_RUNSX=b2", b""] {
            assert!(!run.is_in(other), "{}", String::from_utf8_lossy(other));
        }
        assert_ne!(RunId::new(), RunId::new());
    }
}
