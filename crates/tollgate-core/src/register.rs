//! A register: a small value with revisions, which may end with a lease.

use crate::event::RegisterState;
use crate::lease::Lease;
use crate::slab::Id;
use crate::view::RegisterView;
use tollgate_types::Key;

#[derive(Clone)]
pub(crate) struct Register {
    pub(crate) key: Key,
    pub(crate) state: RegisterState,
    /// Derived, rebuilt on load: the record of `state.lease`.
    pub(crate) lease: Option<Id<Lease>>,
}

impl Register {
    pub(crate) fn view(&self) -> RegisterView {
        RegisterView {
            key: self.key.clone(),
            value: self.state.value.clone(),
            lease: self.state.lease,
            create_revision: self.state.create_revision,
            mod_revision: self.state.mod_revision,
            version: self.state.version,
        }
    }
}
