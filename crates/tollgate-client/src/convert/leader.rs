//! Conversion of leaders of elections.

use super::{lease_id, revision, token};
use crate::error::Error;
use crate::leader::Leader;
use tollgate_proto::v1;

pub(crate) fn leader(wire: v1::Leader) -> Result<Leader, Error> {
    Ok(Leader {
        lease: lease_id(wire.lease_id)?,
        token: token(wire.fencing_token)?,
        value_revision: revision(wire.value_revision)?,
        create_revision: revision(wire.create_revision)?,
        election: wire.name,
        owner: wire.owner,
        value: wire.value,
        client_id: wire.client_id,
    })
}
