//! Registers: small values beside the locks, for settings and addresses.
//!
//! Invariant: a write of a session carries a number, so that it is made once however often it is sent; one without is
//! sent once, and its error says if it may have been made. Not here: following registers (`watch`).

mod txn;

pub use txn::{Compare, CompareWith, Relation, Txn, TxnOp, TxnOutcome, TxnResult};

use crate::client::Client;
use crate::consistency::Consistency;
use crate::convert;
use crate::error::Error;
use crate::register::Register;
use crate::session::{Core, Session};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use tokio::time::Instant;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Revision};

/// Registers.
///
/// Those of a client write without a number: if a connection breaks at the wrong moment, the error says that the write
/// [may have happened](Error::may_have_happened). Guard such writes with a compare ([`Registers::txn`]). Those of a
/// session ([`Session::registers`]) write with numbers and have no such moment.
#[derive(Debug, Clone)]
pub struct Registers {
    client: Client,
    /// Who numbers writes.
    session: Option<Session>,
}

impl Client {
    /// Registers, without a session.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// let registers = client.registers();
    /// registers.put("config/colour", "green").await?;
    /// if let Some(register) = registers.get("config/colour").await? {
    ///     println!("{} at {}", String::from_utf8_lossy(&register.value), register.mod_revision);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn registers(&self) -> Registers {
        Registers { client: self.clone(), session: None }
    }
}

impl Session {
    /// Registers whose writes are numbered by this session: made once, however often they are sent.
    ///
    /// ```no_run
    /// # async fn example(session: tollgate_client::Session) -> Result<(), tollgate_client::Error> {
    /// // Gone when the session is: who is here, and where.
    /// session.registers().put("workers/7", "10.0.0.7:9000").lease(session.lease_id()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn registers(&self) -> Registers {
        Registers { client: self.core().client.clone(), session: Some(self.clone()) }
    }
}

impl Registers {
    /// Writes a register, new or not: `.await` it.
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Put {
        let request = v1::PutRequest { key: key.into(), value: value.into(), ..Default::default() };
        Put { registers: self.clone(), request }
    }

    /// Reads a register; none if there is none with this key.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Register>, Error> {
        self.get_with(key, Consistency::Linearizable).await
    }

    /// Reads a register, as fresh as asked for.
    pub async fn get_with(
        &self,
        key: impl Into<Vec<u8>>,
        consistency: Consistency,
    ) -> Result<Option<Register>, Error> {
        let consistency = convert::consistency(consistency);
        let request = v1::GetRequest { key: key.into(), consistency };
        match self.client.call(Op::Get(request)).await? {
            OpResult::Get(response) => response.register.map(convert::register).transpose(),
            _ => Err(Error::unexpected("Get")),
        }
    }

    /// Deletes a register. How many there were: 0 or 1. After a repeat that number is not known, and 0.
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<u64, Error> {
        self.delete_all(v1::DeleteRequest { key: key.into(), ..Default::default() }).await
    }

    /// Deletes all registers whose key begins with `prefix`, which must not be empty. How many there were, as in
    /// [`Registers::delete`].
    pub async fn delete_prefix(&self, prefix: impl Into<Vec<u8>>) -> Result<u64, Error> {
        self.delete_all(v1::DeleteRequest { prefix: prefix.into(), ..Default::default() }).await
    }

    async fn delete_all(&self, mut request: v1::DeleteRequest) -> Result<u64, Error> {
        let write = |number: Option<v1::Request>| {
            request.request = number;
            Op::Delete(request)
        };
        match self.write(write).await? {
            OpResult::Delete(response) => Ok(response.deleted),
            _ => Err(Error::unexpected("Delete")),
        }
    }

    /// All registers whose key begins with `prefix`; empty for all. `.await` it.
    pub fn range(&self, prefix: impl Into<Vec<u8>>) -> Range {
        let prefix = prefix.into();
        let all = prefix.is_empty();
        Range { client: self.client.clone(), request: v1::RangeRequest { prefix, all, ..Default::default() } }
    }

    /// Compares, then reads and writes, in one step that nothing comes between.
    pub fn txn(&self) -> Txn {
        Txn::new(self.clone())
    }

    /// Makes a write, with a number if there is a session to number it.
    async fn write(&self, op: impl FnOnce(Option<v1::Request>) -> Op) -> Result<OpResult, Error> {
        let Some(session) = &self.session else { return self.client.call(op(None)).await };
        let core = session.core();
        let _place = core.place().await;
        let number = core.seqs.number();
        let request = v1::Request { lease_id: core.lease.get(), ..Core::request(number.seq) };
        let until = Instant::now() + self.client.call_timeout();
        Ok(core.ask(&mut op(Some(request)), Some(until)).await?.result)
    }
}

/// A write of a register: `.await` it.
#[derive(Debug, Clone)]
#[must_use = "nothing is written until it is awaited"]
pub struct Put {
    registers: Registers,
    request: v1::PutRequest,
}

impl Put {
    /// The register ends with this lease. Without one it stays until it is deleted.
    pub fn lease(mut self, lease: LeaseId) -> Put {
        self.request.lease_id = lease.get();
        self
    }

    async fn put(self) -> Result<Revision, Error> {
        let Put { registers, mut request } = self;
        let write = |number: Option<v1::Request>| {
            request.request = number;
            Op::Put(request)
        };
        match registers.write(write).await? {
            OpResult::Put(response) => convert::revision(response.revision),
            _ => Err(Error::unexpected("Put")),
        }
    }
}

/// The revision of the write: the register's `mod_revision` from now on.
impl IntoFuture for Put {
    type Output = Result<Revision, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put())
    }
}

/// The order of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sort {
    /// By key, compared byte by byte.
    #[default]
    Key,
    /// By key, last first.
    KeyDescending,
    /// Oldest first.
    Create,
    /// Newest first.
    CreateDescending,
}

/// A read of several registers: `.await` it.
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is awaited"]
pub struct Range {
    client: Client,
    request: v1::RangeRequest,
}

/// The registers that a range found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// In the order asked for.
    pub registers: Vec<Register>,
    /// How many match, those past the limit included. One above the cluster's limit `range_max` stands for "more".
    pub count: u64,
}

impl Range {
    /// At most so many, after sorting.
    pub fn limit(mut self, registers: u32) -> Range {
        self.request.limit = registers;
        self
    }

    /// In which order; by key if not given.
    pub fn sort(mut self, sort: Sort) -> Range {
        self.request.sort = convert::sort(sort);
        self
    }

    /// How fresh the answer must be.
    pub fn consistency(mut self, consistency: Consistency) -> Range {
        self.request.consistency = convert::consistency(consistency);
        self
    }

    async fn read(self) -> Result<Found, Error> {
        let OpResult::Range(response) = self.client.call(Op::Range(self.request)).await? else {
            return Err(Error::unexpected("Range"));
        };
        let registers = response.registers.into_iter().map(convert::register).collect::<Result<_, _>>()?;
        Ok(Found { registers, count: response.count })
    }
}

impl IntoFuture for Range {
    type Output = Result<Found, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}
