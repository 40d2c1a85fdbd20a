//! Transactions on registers: compare, then read and write, in one step.

use super::Registers;
use crate::convert;
use crate::error::Error;
use crate::register::Register;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Revision};

/// Transaction: if all compares hold, one list of steps runs, otherwise the other, in one atomic step.
///
/// All keys must live in one group: those that share the text inside their first `{...}` do.
///
/// ```no_run
/// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
/// use tollgate_client::{Compare, TxnOp};
///
/// // Compare and swap: writes only if nobody has written since we read.
/// let registers = client.registers();
/// let Some(read) = registers.get("config/colour").await? else { return Ok(()) };
/// let outcome = registers
///     .txn()
///     .when(Compare::mod_revision("config/colour", read.mod_revision))
///     .then(TxnOp::put("config/colour", "blue"))
///     .otherwise(TxnOp::get("config/colour"))
///     .commit()
///     .await?;
/// println!("{}", if outcome.succeeded { "it is blue" } else { "somebody was faster" });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is done until it is committed"]
pub struct Txn {
    registers: Registers,
    request: v1::TxnRequest,
}

impl Txn {
    pub(super) fn new(registers: Registers) -> Txn {
        Txn { registers, request: v1::TxnRequest::default() }
    }

    /// Adds a condition; all conditions must hold.
    pub fn when(mut self, compare: Compare) -> Txn {
        self.request.compares.push(convert::compare(compare));
        self
    }

    /// Adds a step that runs if all compares hold.
    pub fn then(mut self, op: TxnOp) -> Txn {
        self.request.then_ops.push(convert::txn_op(op));
        self
    }

    /// Adds a step that runs if a compare does not hold.
    pub fn otherwise(mut self, op: TxnOp) -> Txn {
        self.request.else_ops.push(convert::txn_op(op));
        self
    }

    /// Runs the transaction.
    pub async fn commit(self) -> Result<TxnOutcome, Error> {
        let Txn { registers, mut request } = self;
        let write = |number: Option<v1::Request>| {
            request.request = number;
            Op::Txn(request)
        };
        match registers.write(write).await? {
            OpResult::Txn(response) => convert::txn_outcome(response),
            _ => Err(Error::unexpected("Txn")),
        }
    }
}

/// Relation that a compare requires between an attribute of a register and the given value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Relation {
    /// The attribute equals the given value.
    #[default]
    Equal,
    /// The attribute differs from the given value.
    NotEqual,
    /// The attribute is below the given value.
    Less,
    /// The attribute is above the given value.
    Greater,
}

/// Attribute of a register to compare, with the value to compare it with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareWith {
    /// Create revision; zero if the register does not exist.
    CreateRevision(Revision),
    /// Revision of the last put; zero if the register does not exist.
    ModRevision(Revision),
    /// Number of puts since the creation; 0 if the register does not exist.
    Version(u64),
    /// Value of the register. No relation holds for the value of a register that does not exist.
    Value(Vec<u8>),
    /// Lease of the register, or none.
    Lease(Option<LeaseId>),
}

/// Condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compare {
    /// Key of the register.
    pub key: Vec<u8>,
    /// Relation required between the attribute and the given value.
    pub relation: Relation,
    /// Attribute to compare, and the value to compare it with.
    pub with: CompareWith,
}

impl Compare {
    /// Creates any condition.
    pub fn new(key: impl Into<Vec<u8>>, relation: Relation, with: CompareWith) -> Compare {
        Compare { key: key.into(), relation, with }
    }

    /// Creates the condition that the register was last put at this revision: nobody has written since.
    pub fn mod_revision(key: impl Into<Vec<u8>>, revision: Revision) -> Compare {
        Compare::new(key, Relation::Equal, CompareWith::ModRevision(revision))
    }

    /// Creates the condition that the register has this value.
    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Relation::Equal, CompareWith::Value(value.into()))
    }

    /// Creates the condition that the register does not exist.
    pub fn missing(key: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Relation::Equal, CompareWith::CreateRevision(Revision::ZERO))
    }

    /// Creates the condition that the register exists.
    pub fn exists(key: impl Into<Vec<u8>>) -> Compare {
        Compare::new(key, Relation::Greater, CompareWith::CreateRevision(Revision::ZERO))
    }
}

/// Step of a transaction. A key is written at most once in a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnOp {
    /// Writes a register.
    Put {
        /// Key of the register.
        key: Vec<u8>,
        /// Value to write.
        value: Vec<u8>,
        /// Lease with which the register ends; none keeps it until it is deleted.
        lease: Option<LeaseId>,
    },
    /// Reads a register, as the previous steps left it.
    Get {
        /// Key of the register.
        key: Vec<u8>,
    },
    /// Deletes a register.
    Delete {
        /// Key of the register.
        key: Vec<u8>,
    },
}

impl TxnOp {
    /// Creates a step that writes a register without a lease.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Creates a step that reads a register.
    pub fn get(key: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::Get { key: key.into() }
    }

    /// Creates a step that deletes a register.
    pub fn delete(key: impl Into<Vec<u8>>) -> TxnOp {
        TxnOp::Delete { key: key.into() }
    }
}

/// Result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnOutcome {
    /// True if all compares held, so that the `then` steps ran; false if the `otherwise` steps ran.
    pub succeeded: bool,
    /// Revision of the transaction's writes, or the current revision if it wrote nothing.
    pub revision: Revision,
    /// Results, one per step of the branch that ran. None if the answer got lost and the request was repeated:
    /// `succeeded` is kept for repeats, the results of the steps are not.
    pub results: Option<Vec<TxnResult>>,
}

/// Result of one step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnResult {
    /// A register was written.
    Put,
    /// Register that was found, if any.
    Get(Option<Register>),
    /// Number of deleted registers: 0 or 1.
    Deleted(u64),
}
