//! The fields of the command that breaks a deadlock, as bytes.

use super::wire::{DecodeError, Reader, Writer};
use crate::command::EndDeadlock;

impl Writer<'_> {
    pub(super) fn end_deadlock(&mut self, end: &EndDeadlock) {
        let EndDeadlock { name, create_revision, blocker } = end;
        self.name(name);
        self.revision(*create_revision);
        self.token(*blocker);
    }
}

impl Reader<'_> {
    pub(super) fn end_deadlock(&mut self) -> Result<EndDeadlock, DecodeError> {
        Ok(EndDeadlock { name: self.name()?, create_revision: self.revision()?, blocker: self.token()? })
    }
}
