//! The origin of a setting's value, so that an operator who sees a surprising value knows where to change it.

use std::fmt;
use std::path::PathBuf;

/// Source of a value. A later variant overrides an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Default: nobody set the value.
    Default,
    /// The configuration file.
    File {
        /// Path as the operator named it.
        path: PathBuf,
        /// Line of the value, from 1.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// Name of the variable.
        name: String,
    },
    /// A command-line flag.
    Flag {
        /// Name of the flag, with its dashes.
        name: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env { name } => write!(f, "env {name}"),
            Origin::Flag { name } => write!(f, "flag {name}"),
        }
    }
}
