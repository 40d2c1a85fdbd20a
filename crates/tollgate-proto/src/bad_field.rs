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
    /// The limit that it is above, if it is only too large.
    pub above: Option<SizeLimit>,
}

/// A limit on how large a field may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// Its name: that of a limit of the cluster if it can be set.
    pub name: &'static str,
    /// The greatest value that it can have.
    pub max: usize,
}

impl BadField {
    /// The field breaks a rule of the wire.
    pub fn new(field: &'static str, says: impl Into<String>) -> BadField {
        BadField { field, says: says.into(), above: None }
    }

    /// The field is longer, or has more elements, than a limit can allow.
    pub fn too_large(field: &'static str, limit: SizeLimit, says: impl Into<String>) -> BadField {
        BadField { above: Some(limit), ..BadField::new(field, says) }
    }

    /// The field breaks a rule of the type that it is to become.
    pub fn invalid(field: &'static str) -> impl Fn(Invalid) -> BadField {
        move |invalid| match invalid {
            Invalid::TooLong { limit: name, max, .. } => {
                BadField::too_large(field, SizeLimit { name, max }, invalid.to_string())
            }
            _ => BadField::new(field, invalid.to_string()),
        }
    }
}
