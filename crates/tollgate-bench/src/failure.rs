//! The error of an operation, or of a whole run.

/// Error of an operation or a run.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// An error of the Tollgate client.
    #[error("{0}")]
    Client(#[from] tollgate_client::Error),
    /// A description in words.
    #[error("{0}")]
    Says(String),
}

impl Failure {
    /// Creates a failure with a description in words.
    pub fn says(text: impl Into<String>) -> Failure {
        Failure::Says(text.into())
    }
}

impl From<tollgate_client::AcquireError> for Failure {
    fn from(error: tollgate_client::AcquireError) -> Failure {
        match error {
            tollgate_client::AcquireError::Failed(error) => Failure::Client(error),
            other => Failure::Says(other.to_string()),
        }
    }
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Failure {
        Failure::Says(format!("{}: {}", status.code(), status.message()))
    }
}
