//! Where a value came from, so that an operator who sees a surprising one knows where to change it.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from. A later variant beats an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line of the value, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Env {
        /// The variable.
        name: String,
    },
    /// A flag of the command line.
    Flag {
        /// The flag, with its dashes.
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
