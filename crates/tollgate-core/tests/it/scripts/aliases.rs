//! The short names of leases: `l7` in a script is the lease with id 7, unless the group assigned it another.

use tollgate_types::LeaseId;

/// The lease of each alias.
#[derive(Default)]
pub(super) struct Aliases(Vec<(String, LeaseId)>);

impl Aliases {
    /// Makes `alias` stand for `lease` from here on.
    pub(super) fn bind(&mut self, alias: &str, lease: LeaseId) {
        self.0.retain(|(other, _)| other != alias);
        self.0.push((alias.to_owned(), lease));
    }

    /// Returns the lease of an alias. An alias that no line has bound stands for its number, so that scripts can name a
    /// lease that never existed.
    pub(super) fn lease(&mut self, alias: &str) -> Result<LeaseId, String> {
        if let Some((_, lease)) = self.0.iter().find(|(other, _)| other == alias) {
            return Ok(*lease);
        }
        let number = alias.strip_prefix('l').and_then(|number| number.parse().ok());
        let number =
            number.ok_or_else(|| format!("{alias} is no lease: write l1, l2, or grant it with id="))?;
        let lease = LeaseId::new(number).map_err(|e| e.to_string())?;
        self.bind(alias, lease);
        Ok(lease)
    }

    /// Replaces the ids in a text by aliases, in both forms: by themselves, and in keys.
    pub(super) fn put_into(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (alias, lease)| {
            text.replace(&lease.to_string(), alias).replace(&format!("{lease:016x}"), alias)
        })
    }
}
