//! Ids, tokens, revisions and seqs. 0 means "none" where a field is optional.

use crate::bad_field::BadField;
use tollgate_types::{GroupId, LeaseId, NodeId, Revision, Seq, Token};

/// Reads a lease id; 0 is refused.
pub fn read_lease_id(field: &'static str, number: u64) -> Result<LeaseId, BadField> {
    if number == 0 {
        return Err(BadField::new(field, "no lease is given: grant one and give its id"));
    }
    LeaseId::new(number).map_err(BadField::invalid(field))
}

/// Reads a lease id, or none if it is 0.
pub fn read_lease_id_or_none(field: &'static str, number: u64) -> Result<Option<LeaseId>, BadField> {
    if number == 0 { Ok(None) } else { read_lease_id(field, number).map(Some) }
}

/// Returns the lease id, or 0 for none.
pub fn write_lease_id(lease: Option<LeaseId>) -> u64 {
    lease.map_or(0, LeaseId::get)
}

/// Reads a fencing token; 0 is refused.
pub fn read_token(field: &'static str, number: u64) -> Result<Token, BadField> {
    Token::new(number).map_err(BadField::invalid(field))
}

/// Reads a fencing token, or none if it is 0.
pub fn read_token_or_none(field: &'static str, number: u64) -> Result<Option<Token>, BadField> {
    if number == 0 { Ok(None) } else { read_token(field, number).map(Some) }
}

/// Returns the fencing token, or 0 for none.
pub fn write_token(token: Option<Token>) -> u64 {
    token.map_or(0, Token::get)
}

/// Reads a revision; 0 is before the first.
pub fn read_revision(field: &'static str, number: u64) -> Result<Revision, BadField> {
    Revision::new(number).map_err(BadField::invalid(field))
}

/// Reads the number of a request; 0 is refused.
pub fn read_seq(field: &'static str, number: u64) -> Result<Seq, BadField> {
    Seq::new(number).map_err(BadField::invalid(field))
}

/// Reads a node id; 0 is refused.
pub fn read_node_id(field: &'static str, number: u64) -> Result<NodeId, BadField> {
    NodeId::new(number)
        .ok_or_else(|| BadField::new(field, "there is no node 0: list the members for their ids"))
}

/// Reads a node id, or none if it is 0.
pub fn read_node_id_or_none(number: u64) -> Option<NodeId> {
    NodeId::new(number)
}

/// Reads a group id: all numbers are valid.
pub fn read_group_id(number: u32) -> GroupId {
    GroupId::new(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::REVISION_END;

    #[test]
    fn good_numbers_are_read_as_they_are() {
        assert_eq!(read_lease_id("id", 7).unwrap().get(), 7);
        assert_eq!(read_token("fencing_token", 7).unwrap().get(), 7);
        assert_eq!(read_revision("revision", 0).unwrap(), Revision::ZERO);
        assert_eq!(read_seq("seq", 1).unwrap().get(), 1);
        assert_eq!(read_node_id("node_id", 3).unwrap().number(), 3);
        assert_eq!(read_group_id(4).number(), 4);
    }

    #[test]
    fn zero_is_none_where_there_can_be_none_and_back() {
        assert_eq!(read_lease_id_or_none("lease_id", 0), Ok(None));
        assert_eq!(read_token_or_none("fencing_token", 0), Ok(None));
        assert_eq!(read_node_id_or_none(0), None);
        assert_eq!(write_lease_id(None), 0);
        assert_eq!(write_token(None), 0);
        let lease = read_lease_id_or_none("lease_id", 9).unwrap();
        assert_eq!(write_lease_id(lease), 9);
        let token = read_token_or_none("fencing_token", 8).unwrap();
        assert_eq!(write_token(token), 8);
    }

    #[test]
    fn zero_is_refused_where_something_must_be() {
        let says = read_lease_id("lease_id", 0).unwrap_err().to_string();
        assert_eq!(says, "bad field lease_id: no lease is given: grant one and give its id");
        assert_eq!(read_token("fencing_token", 0).unwrap_err().field, "fencing_token");
        assert_eq!(read_seq("request.seq", 0).unwrap_err().field, "request.seq");
        assert!(read_node_id("node_id", 0).unwrap_err().says.contains("list the members"));
    }

    #[test]
    fn numbers_that_nobody_gave_out_are_refused() {
        assert!(read_lease_id("id", 1 << 63).is_err());
        assert!(read_lease_id_or_none("id", u64::MAX).is_err());
        assert!(read_token("fencing_token", REVISION_END).is_err());
        assert!(read_token_or_none("fencing_token", REVISION_END).is_err());
        assert!(read_revision("start_revision", REVISION_END).is_err());
        assert!(read_seq("seq", REVISION_END).is_err());
    }
}
