//! Errors about a field of a request: the field, and the rule that it breaks.

use tollgate_types::Invalid;

/// A field that can't be read. The caller must change it; sending the request again as it is gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad field {field}: {says}")]
pub struct BadField {
    /// Name of the field in the request, with dots into messages.
    pub field: &'static str,
    /// Rule that the field breaks, and advice for the caller.
    pub says: String,
    /// Limit that the field exceeds, if its size is all that is wrong.
    pub above: Option<SizeLimit>,
}

/// A limit on how large a field may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// Name of the limit; if it is a configurable limit of the cluster, under the same name.
    pub name: &'static str,
    /// Greatest size that the field can have.
    pub max: usize,
}

impl BadField {
    /// Error for a field that breaks a rule of the wire format.
    pub fn new(field: &'static str, says: impl Into<String>) -> BadField {
        BadField { field, says: says.into(), above: None }
    }

    /// Error for a field that is longer, or has more elements, than a limit can allow.
    pub fn too_large(field: &'static str, limit: SizeLimit, says: impl Into<String>) -> BadField {
        BadField { above: Some(limit), ..BadField::new(field, says) }
    }

    /// Error for a field that breaks a rule of the type into which it is converted.
    pub fn invalid(field: &'static str) -> impl Fn(Invalid) -> BadField {
        move |invalid| match invalid {
            Invalid::TooLong { limit: name, max, .. } => {
                BadField::too_large(field, SizeLimit { name, max }, invalid.to_string())
            }
            _ => BadField::new(field, invalid.to_string()),
        }
    }
}
