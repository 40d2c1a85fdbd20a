//! Keys, conditions and steps of requests about registers.

use crate::bad_field::BadField;
use crate::convert::choice::{read_relation, read_sort};
use crate::convert::number::{read_lease_id_or_none, read_revision};
use crate::convert::text::{read_key, read_value};
use crate::v1::{self, Relation, Sort, compare, txn_op};
use tollgate_types::{Key, LeaseId, Revision, Value};

/// Selection of registers by key or prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelector {
    /// The register with exactly this key.
    Key(Key),
    /// All registers whose key begins with this prefix.
    Prefix(Key),
    /// All registers.
    All,
}

/// Reads the fields `key`, `prefix` and `all`. Exactly one must be set, so that a forgotten field never means "all".
pub fn read_key_selector(key: &[u8], prefix: &[u8], all: bool) -> Result<KeySelector, BadField> {
    match (key.is_empty(), prefix.is_empty(), all) {
        (false, true, false) => read_key("key", key).map(KeySelector::Key),
        (true, false, false) => read_key("prefix", prefix).map(KeySelector::Prefix),
        (true, true, true) => Ok(KeySelector::All),
        (true, true, false) => Err(BadField::new("key", "no register is given: set key, prefix or all")),
        (_, false, _) => Err(BadField::new("prefix", "set one of key, prefix and all")),
        (false, true, true) => Err(BadField::new("all", "set one of key, prefix and all")),
    }
}

/// Condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// Key of the register.
    pub key: Key,
    /// Relation required between the attribute and the given value; never `Unspecified`.
    pub relation: Relation,
    /// Attribute to compare, and the value to compare it with.
    pub against: Against,
}

/// Attribute of a register, with a value to compare it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    /// Create revision; 0 if the register does not exist.
    Create(Revision),
    /// Revision of the last put.
    Mod(Revision),
    /// Number of puts since the creation.
    Version(u64),
    /// Value of the register.
    Value(Value),
    /// Lease of the register.
    Lease(Option<LeaseId>),
}

/// Reads one element of the field `compares`.
pub fn read_compare(compare: &v1::Compare) -> Result<Compare, BadField> {
    let against = match &compare.against {
        None => {
            return Err(BadField::new(
                "compares.against",
                "say what to compare: a revision, version, value or lease",
            ));
        }
        Some(compare::Against::CreateRevision(revision)) => {
            Against::Create(read_revision("compares.create_revision", *revision)?)
        }
        Some(compare::Against::ModRevision(revision)) => {
            Against::Mod(read_revision("compares.mod_revision", *revision)?)
        }
        Some(compare::Against::Version(version)) => Against::Version(*version),
        Some(compare::Against::Value(value)) => Against::Value(read_value("compares.value", value)?),
        Some(compare::Against::LeaseId(lease)) => {
            Against::Lease(read_lease_id_or_none("compares.lease_id", *lease)?)
        }
    };
    Ok(Compare {
        key: read_key("compares.key", &compare.key)?,
        relation: read_relation("compares.relation", compare.relation)?,
        against,
    })
}

/// Step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOp {
    /// Writes a register.
    Put {
        /// Key of the register.
        key: Key,
        /// Value to write.
        value: Value,
        /// Lease with which the register ends.
        lease: Option<LeaseId>,
    },
    /// Reads registers.
    Get {
        /// Registers to read.
        keys: KeySelector,
        /// Maximum number of registers; 0 means as many as allowed.
        limit: u32,
        /// Order of the registers; never `Unspecified`.
        sort: Sort,
    },
    /// Deletes registers.
    Delete(KeySelector),
}

/// Reads one element of `then_ops` or `else_ops`; `field` says of which. A step must not set fields that belong to the
/// transaction as a whole: request, consistency and groups.
pub fn read_txn_op(field: &'static str, op: &v1::TxnOp) -> Result<TxnOp, BadField> {
    let refuse_own = |own: bool| {
        let says =
            "a step has no request, no consistency and no group of its own: they are the transaction's";
        if own { Err(BadField::new(field, says)) } else { Ok(()) }
    };
    match &op.op {
        None => Err(BadField::new(field, "a step does nothing: set put, get or delete")),
        Some(txn_op::Op::Put(put)) => {
            refuse_own(put.request.is_some())?;
            let (key, value) = (read_key("put.key", &put.key)?, read_value("put.value", &put.value)?);
            Ok(TxnOp::Put { key, value, lease: read_lease_id_or_none("put.lease_id", put.lease_id)? })
        }
        Some(txn_op::Op::Get(get)) => {
            refuse_own(get.consistency != 0 || !get.group_ids.is_empty())?;
            let keys = read_key_selector(&get.key, &get.prefix, get.all)?;
            Ok(TxnOp::Get { keys, limit: get.limit, sort: read_sort("get.sort", get.sort)? })
        }
        Some(txn_op::Op::Delete(delete)) => {
            refuse_own(delete.request.is_some())?;
            read_key_selector(&delete.key, &delete.prefix, delete.all).map(TxnOp::Delete)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn keys_are_one_a_prefix_or_all() {
        assert_eq!(read_key_selector(b"k", b"", false), Ok(KeySelector::Key(key("k"))));
        assert_eq!(read_key_selector(b"", b"k", false), Ok(KeySelector::Prefix(key("k"))));
        assert_eq!(read_key_selector(b"", b"", true), Ok(KeySelector::All));
    }

    #[test]
    fn keys_that_are_not_or_twice_given_are_refused() {
        let field_of = |key, prefix, all| read_key_selector(key, prefix, all).unwrap_err().field;
        assert_eq!(field_of(b"", b"", false), "key");
        assert_eq!(field_of(b"k", b"k", false), "prefix");
        assert_eq!(field_of(b"", b"k", true), "prefix");
        assert_eq!(field_of(b"k", b"", true), "all");
        assert_eq!(field_of(&[0; 513], b"", false), "key");
    }

    #[test]
    fn every_attribute_can_be_compared() {
        let revision = Revision::new(4).unwrap();
        let lease = LeaseId::new(7).unwrap();
        let cases = [
            (compare::Against::CreateRevision(0), Against::Create(Revision::ZERO)),
            (compare::Against::ModRevision(4), Against::Mod(revision)),
            (compare::Against::Version(2), Against::Version(2)),
            (compare::Against::Value(b"v".to_vec()), Against::Value(Value::new("v").unwrap())),
            (compare::Against::LeaseId(0), Against::Lease(None)),
            (compare::Against::LeaseId(7), Against::Lease(Some(lease))),
        ];
        for (wire, against) in cases {
            let compare = v1::Compare { key: b"k".to_vec(), relation: 0, against: Some(wire) };
            let expected = Compare { key: key("k"), relation: Relation::Equal, against };
            assert_eq!(read_compare(&compare), Ok(expected));
        }
    }

    #[test]
    fn a_compare_that_is_not_whole_is_refused() {
        let whole = v1::Compare {
            key: b"k".to_vec(),
            relation: Relation::Less.into(),
            against: Some(compare::Against::Version(1)),
        };
        let field_of = |compare| read_compare(&compare).unwrap_err().field;
        assert_eq!(field_of(v1::Compare { against: None, ..whole.clone() }), "compares.against");
        assert_eq!(field_of(v1::Compare { key: vec![], ..whole.clone() }), "compares.key");
        assert_eq!(field_of(v1::Compare { relation: 9, ..whole.clone() }), "compares.relation");
        let future = Some(compare::Against::ModRevision(u64::MAX));
        assert_eq!(field_of(v1::Compare { against: future, ..whole }), "compares.mod_revision");
    }

    #[test]
    fn steps_put_get_and_delete() {
        let read = |op| read_txn_op("then_ops", &v1::TxnOp { op: Some(op) });
        let put = v1::PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), ..Default::default() };
        let value = Value::new("v").unwrap();
        assert_eq!(read(txn_op::Op::Put(put)), Ok(TxnOp::Put { key: key("k"), value, lease: None }));
        let get = v1::RangeRequest { prefix: b"k".to_vec(), limit: 3, ..Default::default() };
        let keys = KeySelector::Prefix(key("k"));
        assert_eq!(read(txn_op::Op::Get(get)), Ok(TxnOp::Get { keys, limit: 3, sort: Sort::Key }));
        let delete = v1::DeleteRequest { all: true, ..Default::default() };
        assert_eq!(read(txn_op::Op::Delete(delete)), Ok(TxnOp::Delete(KeySelector::All)));
    }

    #[test]
    fn a_step_that_is_empty_or_has_what_is_the_transaction_s_is_refused() {
        let field_of = |op| read_txn_op("else_ops", &v1::TxnOp { op }).unwrap_err().field;
        let request = Some(v1::Request::default());
        let put = v1::PutRequest { key: b"k".to_vec(), request: request.clone(), ..Default::default() };
        let get = v1::RangeRequest { all: true, consistency: 3, ..Default::default() };
        let delete = v1::DeleteRequest { all: true, request, ..Default::default() };
        assert_eq!(field_of(None), "else_ops");
        assert_eq!(field_of(Some(txn_op::Op::Put(put))), "else_ops");
        assert_eq!(field_of(Some(txn_op::Op::Get(get))), "else_ops");
        assert_eq!(field_of(Some(txn_op::Op::Delete(delete))), "else_ops");
        let none = v1::DeleteRequest::default();
        assert_eq!(field_of(Some(txn_op::Op::Delete(none))), "key");
    }
}
