//! Identification of the grant that an Unlock or Resign ends.

use crate::bad_field::BadField;
use crate::convert::number::{read_lease_id_or_none, read_token_or_none};
use crate::convert::request::{RequestIdentity, read_request};
use crate::convert::text::read_owner;
use crate::v1;
use tollgate_types::{LeaseId, Owner, Token};

/// Grant to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// Grant of a holder.
    Holder {
        /// Lease of the holder.
        lease: LeaseId,
        /// Owner of the holder.
        owner: Owner,
        /// Fencing token that the grant must have, if given.
        token: Option<Token>,
        /// Identity of the request, by which a repeat is recognized.
        request: Option<RequestIdentity>,
    },
    /// Grant with this token, whoever holds it.
    Token(Token),
}

/// Reads a grant given by lease and owner, by token, or by both. An owner or a request needs a lease.
pub fn read_release(
    lease_id: u64,
    owner: &str,
    fencing_token: u64,
    request: Option<&v1::Request>,
) -> Result<Release, BadField> {
    let token = read_token_or_none("fencing_token", fencing_token)?;
    if let Some(lease) = read_lease_id_or_none("lease_id", lease_id)? {
        let owner = read_owner("owner", owner)?;
        let request = read_request(Some(lease), request)?;
        return Ok(Release::Holder { lease, owner, token, request });
    }
    if !owner.is_empty() {
        return Err(BadField::new("owner", "an owner is part of a lease: set lease_id, or leave it empty"));
    }
    if request.is_some() {
        return Err(BadField::new("request", "leases number requests: set lease_id, or leave it out"));
    }
    token.map(Release::Token).ok_or_else(|| {
        BadField::new("lease_id", "nothing says which grant to end: set lease_id, fencing_token or both")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_named_by_holder_by_token_or_by_both() {
        let lease = LeaseId::new(7).unwrap();
        let holder =
            |token| Release::Holder { lease, owner: Owner::new("t1").unwrap(), token, request: None };
        assert_eq!(read_release(7, "t1", 0, None), Ok(holder(None)));
        let token = Token::new(5).unwrap();
        assert_eq!(read_release(7, "t1", 5, None), Ok(holder(Some(token))));
        assert_eq!(read_release(0, "", 5, None), Ok(Release::Token(token)));
    }

    #[test]
    fn a_release_that_names_no_grant_is_refused() {
        assert_eq!(read_release(0, "", 0, None).unwrap_err().field, "lease_id");
    }

    #[test]
    fn owner_and_request_need_a_lease() {
        assert_eq!(read_release(0, "t1", 5, None).unwrap_err().field, "owner");
        let request = v1::Request { seq: 1, lease_id: 7, ..v1::Request::default() };
        assert_eq!(read_release(0, "", 5, Some(&request)).unwrap_err().field, "request");
        assert!(matches!(
            read_release(7, "", 5, Some(&request)),
            Ok(Release::Holder { request: Some(identity), .. }) if identity.seq.get() == 1
        ));
    }
}
