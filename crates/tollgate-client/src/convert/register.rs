//! Conversions of registers, and of transactions on them.

use super::{lease_id_or_none, revision, strange};
use crate::error::Error;
use crate::register::Register;
use crate::registers::{Compare, CompareWith, Relation, Sort, TxnOp, TxnOutcome, TxnResult};
use tollgate_proto::v1::{self, compare::Against, txn_op::Op, txn_op_result};

pub(crate) fn register(wire: v1::Register) -> Result<Register, Error> {
    Ok(Register {
        lease: lease_id_or_none(wire.lease_id)?,
        create_revision: revision(wire.create_revision)?,
        mod_revision: revision(wire.mod_revision)?,
        key: wire.key,
        value: wire.value,
        version: wire.version,
    })
}

pub(crate) fn sort(sort: Sort) -> i32 {
    match sort {
        Sort::Key => v1::Sort::Key,
        Sort::KeyDescending => v1::Sort::KeyDescending,
        Sort::Create => v1::Sort::Create,
        Sort::CreateDescending => v1::Sort::CreateDescending,
    }
    .into()
}

pub(crate) fn compare(compare: Compare) -> v1::Compare {
    let relation = match compare.relation {
        Relation::Equal => v1::Relation::Equal,
        Relation::NotEqual => v1::Relation::NotEqual,
        Relation::Less => v1::Relation::Less,
        Relation::Greater => v1::Relation::Greater,
    };
    let against = match compare.with {
        CompareWith::CreateRevision(revision) => Against::CreateRevision(revision.get()),
        CompareWith::ModRevision(revision) => Against::ModRevision(revision.get()),
        CompareWith::Version(version) => Against::Version(version),
        CompareWith::Value(value) => Against::Value(value),
        CompareWith::Lease(lease) => Against::LeaseId(lease.map_or(0, tollgate_types::LeaseId::get)),
    };
    v1::Compare { key: compare.key, relation: relation.into(), against: Some(against) }
}

pub(crate) fn txn_op(op: TxnOp) -> v1::TxnOp {
    let op = match op {
        TxnOp::Put { key, value, lease } => Op::Put(v1::PutRequest {
            key,
            value,
            lease_id: lease.map_or(0, tollgate_types::LeaseId::get),
            request: None,
        }),
        TxnOp::Get { key } => Op::Get(v1::RangeRequest { key, ..Default::default() }),
        TxnOp::Delete { key } => Op::Delete(v1::DeleteRequest { key, ..Default::default() }),
    };
    v1::TxnOp { op: Some(op) }
}

pub(crate) fn txn_outcome(wire: v1::TxnResponse) -> Result<TxnOutcome, Error> {
    let results = (!wire.without_results).then(|| wire.results.into_iter().map(txn_result).collect());
    Ok(TxnOutcome {
        succeeded: wire.succeeded,
        revision: revision(wire.revision)?,
        results: results.transpose()?,
    })
}

fn txn_result(wire: v1::TxnOpResult) -> Result<TxnResult, Error> {
    Ok(match wire.result.ok_or_else(|| strange(()))? {
        txn_op_result::Result::Put(_) => TxnResult::Put,
        txn_op_result::Result::Get(found) => {
            TxnResult::Get(found.registers.into_iter().next().map(register).transpose()?)
        }
        txn_op_result::Result::Delete(deleted) => TxnResult::Deleted(deleted.deleted),
    })
}
