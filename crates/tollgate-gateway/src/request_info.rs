//! The facts about an operation that are kept while it is in flight, and the interface that measures it afterwards.
//!
//! `RequestInfo` is small and `Copy`, so that the operation itself can be moved away. Not here: the meaning of the
//! operation (`operation`).

use std::time::Duration;
use tollgate_proto::v1::{operation::Op, operation_result::Result as OpResult};

/// The kinds of operations: the names and the order of the fields of `Operation` on the wire.
pub const KINDS: [&str; 20] = [
    "lock",
    "unlock",
    "try_lock",
    "lease_keep_alive",
    "convert",
    "cancel_wait",
    "lease_grant",
    "lease_revoke",
    "lease_time_to_live",
    "get_lock",
    "put",
    "get",
    "delete",
    "txn",
    "range",
    "force_release",
    "campaign",
    "proclaim",
    "leader",
    "resign",
];

/// The facts about an operation that its measurement needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestInfo {
    /// Index of the operation's kind in [`KINDS`].
    pub kind: usize,
    /// Fencing token of the grant that the operation ends, if the operation names it; else 0.
    pub fencing_token: u64,
}

/// Receives every completed operation.
pub trait OperationMeter: std::fmt::Debug + Send + Sync {
    /// Records an operation that got its final result, `took` after it arrived.
    fn operation(&self, asked: RequestInfo, result: &OpResult, took: Duration);

    /// Records an operation that was refused because of overload. [`OperationMeter::operation`] is called for it too.
    fn shed(&self, asked: RequestInfo);
}

impl From<&Op> for RequestInfo {
    fn from(op: &Op) -> RequestInfo {
        let kind = match op {
            Op::Lock(_) => 0,
            Op::Unlock(_) => 1,
            Op::TryLock(_) => 2,
            Op::LeaseKeepAlive(_) => 3,
            Op::Convert(_) => 4,
            Op::CancelWait(_) => 5,
            Op::LeaseGrant(_) => 6,
            Op::LeaseRevoke(_) => 7,
            Op::LeaseTimeToLive(_) => 8,
            Op::GetLock(_) => 9,
            Op::Put(_) => 10,
            Op::Get(_) => 11,
            Op::Delete(_) => 12,
            Op::Txn(_) => 13,
            Op::Range(_) => 14,
            Op::ForceRelease(_) => 15,
            Op::Campaign(_) => 16,
            Op::Proclaim(_) => 17,
            Op::Leader(_) => 18,
            Op::Resign(_) => 19,
        };
        let fencing_token = match op {
            Op::Unlock(it) => it.fencing_token,
            Op::ForceRelease(it) => it.fencing_token,
            Op::Resign(it) => it.fencing_token,
            _ => 0,
        };
        RequestInfo { kind, fencing_token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use prost_reflect::DescriptorPool;
    use tollgate_proto::{FILE_DESCRIPTOR_SET, v1};

    #[test]
    fn kinds_have_the_names_and_the_order_that_the_wire_has() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let operation = pool.get_message_by_name("tollgate.v1.Operation").unwrap();
        let fields: Vec<_> = operation.oneofs().next().unwrap().fields().collect();
        assert_eq!(fields.iter().map(|field| field.name().to_owned()).collect::<Vec<_>>(), KINDS);
        for (place, field) in fields.iter().enumerate() {
            // An empty message in that field: its tag, and no bytes.
            let mut bytes = Vec::new();
            prost::encoding::encode_key(
                field.number(),
                prost::encoding::WireType::LengthDelimited,
                &mut bytes,
            );
            bytes.push(0);
            let op = v1::Operation::decode(bytes.as_slice()).unwrap().op.unwrap();
            assert_eq!(RequestInfo::from(&op).kind, place, "{op:?}");
        }
    }

    #[test]
    fn what_ends_a_grant_by_its_token_says_which() {
        let op = Op::Unlock(v1::UnlockRequest { fencing_token: 7, ..Default::default() });
        assert_eq!(RequestInfo::from(&op), RequestInfo { kind: 1, fencing_token: 7 });
        assert_eq!(RequestInfo::from(&Op::Lock(v1::LockRequest::default())).fencing_token, 0);
    }
}
