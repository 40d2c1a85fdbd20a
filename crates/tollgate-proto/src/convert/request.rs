//! The identity of a request, by which a repeat is recognized.

use crate::bad_field::{BadField, SizeLimit};
use crate::convert::number::{read_lease_id_or_none, read_seq};
use crate::convert::text::read_name;
use crate::v1;
use tollgate_types::{LeaseId, NAMES_MAX, Names, SEQ_RANGES_MAX, Seq, SeqRanges};

/// Identity of a request: the numbering lease and the seq, with the client's acknowledgements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIdentity {
    /// Lease that numbers the request.
    pub lease: LeaseId,
    /// Number of the request; a repeat has the same number.
    pub seq: Seq,
    /// Requests of the lease whose answers the client has received.
    pub acked: SeqRanges,
    /// Attempt number: 0 at first, 1 more with each repeat.
    pub attempt: u32,
    /// All names of the original request, if this request is a part of it for one group.
    pub part_of: Option<Names>,
}

/// Reads the field `request` of a message; `asking` is the lease that makes the request, if the message names one.
/// Returns none if the request has no number.
pub fn read_request(
    asking: Option<LeaseId>,
    request: Option<&v1::Request>,
) -> Result<Option<RequestIdentity>, BadField> {
    let Some(request) = request else { return Ok(None) };
    let numbering = read_lease_id_or_none("request.lease_id", request.lease_id)?;
    let lease = match (asking, numbering) {
        (Some(asking), Some(numbering)) if asking != numbering => {
            let says = format!("lease {asking} asks, so it numbers the request: leave this 0");
            return Err(BadField::new("request.lease_id", says));
        }
        (Some(lease), _) | (None, Some(lease)) => lease,
        (None, None) => {
            let says = "nobody numbers the request: give the lease that does, or leave request out";
            return Err(BadField::new("request.lease_id", says));
        }
    };
    Ok(Some(RequestIdentity {
        lease,
        seq: read_seq("request.seq", request.seq)?,
        acked: read_seq_ranges("request.acked", &request.acked)?,
        attempt: request.attempt,
        part_of: read_part_of(&request.all_names)?,
    }))
}

/// Reads the names of the original request; none if this request is not a part.
fn read_part_of(all_names: &[String]) -> Result<Option<Names>, BadField> {
    const FIELD: &str = "request.all_names";
    if all_names.is_empty() {
        return Ok(None);
    }
    // Checked before the names are copied: a frame has room for millions.
    if all_names.len() > NAMES_MAX {
        let says = format!("{} names are too many: at most {NAMES_MAX} in one request", all_names.len());
        return Err(BadField::new(FIELD, says));
    }
    let names = all_names.iter().map(|name| read_name(FIELD, name)).collect::<Result<Vec<_>, _>>()?;
    Names::new(names).map(Some).map_err(BadField::invalid(FIELD))
}

/// Returns the field `request`, for a message that names the lease that makes the request. In other messages set
/// `lease_id` as well.
pub fn write_request(seq: Seq, acked: &SeqRanges, attempt: u32) -> v1::Request {
    v1::Request { seq: seq.get(), acked: write_seq_ranges(acked), attempt, ..v1::Request::default() }
}

/// Reads a set of seqs; may be empty.
pub fn read_seq_ranges(field: &'static str, ranges: &[v1::SeqRange]) -> Result<SeqRanges, BadField> {
    // Checked before the ranges are copied: a frame has room for millions.
    if ranges.len() > SEQ_RANGES_MAX {
        let says =
            format!("{} ranges are too many: at most {SEQ_RANGES_MAX}, the lowest first", ranges.len());
        let limit = SizeLimit { name: "seq_ranges_max", max: SEQ_RANGES_MAX };
        return Err(BadField::too_large(field, limit, says));
    }
    let ranges = ranges.iter().map(|range| (range.first, range.last)).collect();
    SeqRanges::new(ranges).map_err(BadField::invalid(field))
}

/// Returns the ranges of a set, at most as many as a request may carry, the lowest first. The others can be sent later.
pub fn write_seq_ranges(seqs: &SeqRanges) -> Vec<v1::SeqRange> {
    let ranges = seqs.ranges().iter().take(SEQ_RANGES_MAX);
    ranges.map(|&(first, last)| v1::SeqRange { first, last }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: u64) -> LeaseId {
        LeaseId::new(id).unwrap()
    }

    fn request(seq: u64, lease_id: u64) -> v1::Request {
        v1::Request { seq, lease_id, ..v1::Request::default() }
    }

    fn field_of(result: Result<Option<RequestIdentity>, BadField>) -> &'static str {
        result.unwrap_err().field
    }

    #[test]
    fn an_identity_survives_the_wire() {
        let acked = SeqRanges::new(vec![(1, 4), (6, 6)]).unwrap();
        let wire = write_request(Seq::new(7).unwrap(), &acked, 2);
        let read = read_request(Some(lease(9)), Some(&wire)).unwrap().unwrap();
        let (seq, part_of) = (Seq::new(7).unwrap(), None);
        assert_eq!(read, RequestIdentity { lease: lease(9), seq, acked, attempt: 2, part_of });
    }

    #[test]
    fn a_request_without_an_identity_has_none() {
        assert_eq!(read_request(Some(lease(9)), None), Ok(None));
        assert_eq!(read_request(None, None), Ok(None));
    }

    #[test]
    fn the_lease_that_asks_numbers_the_request() {
        let same = read_request(Some(lease(9)), Some(&request(1, 9))).unwrap().unwrap();
        assert_eq!(same.lease, lease(9));
        let other = read_request(None, Some(&request(1, 8))).unwrap().unwrap();
        assert_eq!(other.lease, lease(8));
        assert_eq!(field_of(read_request(Some(lease(9)), Some(&request(1, 8)))), "request.lease_id");
        assert_eq!(field_of(read_request(None, Some(&request(1, 0)))), "request.lease_id");
    }

    #[test]
    fn a_part_names_the_whole() {
        let all_names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let part = |names: &[&str]| v1::Request { all_names: all_names(names), ..request(1, 0) };
        let read = read_request(Some(lease(9)), Some(&part(&["b", "a"]))).unwrap().unwrap();
        let sorted: Vec<_> = read.part_of.unwrap().as_slice().iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["a", "b"]);
        for bad in [&["a", "a"][..], &["a", ""], &["a"; 65]] {
            assert_eq!(field_of(read_request(Some(lease(9)), Some(&part(bad)))), "request.all_names");
        }
    }

    #[test]
    fn seq_zero_is_refused() {
        assert_eq!(field_of(read_request(Some(lease(9)), Some(&request(0, 0)))), "request.seq");
    }

    #[test]
    fn acks_that_are_no_set_are_refused() {
        let range = |first, last| v1::SeqRange { first, last };
        for bad in [vec![range(0, 1)], vec![range(3, 2)], vec![range(1, 2), range(3, 4)]] {
            let wire = v1::Request { acked: bad, ..request(9, 0) };
            assert_eq!(field_of(read_request(Some(lease(9)), Some(&wire))), "request.acked");
        }
        let many: Vec<_> = (1..=65).map(|i| range(i * 2, i * 2)).collect();
        assert!(read_seq_ranges("acked", &many).unwrap_err().says.contains("at most 64"));
    }

    #[test]
    fn a_set_with_more_ranges_than_fit_is_told_from_the_lowest() {
        let many = SeqRanges::from_sorted((1..=70).map(|i| (i * 2, i * 2))).unwrap();
        let wire = write_seq_ranges(&many);
        assert_eq!((wire.len(), wire[63].last), (64, 128));
        assert!(read_seq_ranges("acked", &wire).is_ok());
    }
}
