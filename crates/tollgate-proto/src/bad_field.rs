//! What is wrong with a request, and where.

use tollgate_types::Invalid;

/// A field that can't be read. The caller must change it; sending the request again as it is gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad field {field}: {says}")]
pub struct BadField {
    /// Its name in the request, with dots into messages.
    pub field: &'static str,
    /// The rule that it breaks, and what to do instead.
    pub says: String,
}

impl BadField {
    /// The field breaks a rule of the wire.
    pub fn new(field: &'static str, says: impl Into<String>) -> BadField {
        BadField { field, says: says.into() }
    }

    /// The field breaks a rule of the type that it is to become.
    pub fn invalid(field: &'static str) -> impl Fn(Invalid) -> BadField {
        move |invalid| BadField::new(field, invalid.to_string())
    }
}
