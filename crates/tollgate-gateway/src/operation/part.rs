//! Parts of a request that was split by group: the kinds of requests that have parts, and the names that a part has.
//!
//! A part carries the names of the whole request: all parts of a request are one request under its seq. Invariant: a
//! part has all names of the whole that its group serves. A group therefore gets one part, and no second part can be
//! answered with the outcome of the first. Not here: splitting (`several`), and recognizing a repeat (the core).

use tollgate_proto::BadField;
use tollgate_proto::convert::RequestIdentity;
use tollgate_types::{GroupMap, Name, Names};

const FIELD: &str = "request.all_names";

/// Returns the identity of a request that is never split; refuses one that claims to be a part.
pub(super) fn whole(identity: Option<RequestIdentity>) -> Result<Option<RequestIdentity>, BadField> {
    if identity.as_ref().is_some_and(|identity| identity.part_of.is_some()) {
        let says = "only Lock, TryLock and Unlock are taken apart by group, and this is none of them: leave it empty";
        return Err(BadField::new(FIELD, says));
    }
    Ok(identity)
}

/// Refuses a part that does not have exactly the names of the whole that its group serves.
pub(super) fn check_part(
    names: &Names,
    identity: Option<&RequestIdentity>,
    map: &GroupMap,
) -> Result<(), BadField> {
    let Some(whole) = identity.and_then(|identity| identity.part_of.as_ref()) else { return Ok(()) };
    if let Some(name) = names.as_slice().iter().find(|name| !whole.contains(name)) {
        return Err(BadField::new(FIELD, format!("{name} is not among them: leave it empty")));
    }
    let group = |name: &Name| map.group_of(name.slot());
    let here = group(&names.as_slice()[0]);
    match whole.as_slice().iter().find(|name| group(name) == here && !names.contains(name)) {
        Some(left_out) => {
            let says = format!(
                "{left_out} is among them, is served by group {here} like the names of this part, and is not in it: \
                 leave it empty"
            );
            Err(BadField::new(FIELD, says))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::operation::prepare;
    use tollgate_proto::v1::{self, ErrorReason, operation::Op};
    use tollgate_types::{Address, GroupMap, Name};

    fn request(all_names: &[&str]) -> v1::Request {
        let all_names = all_names.iter().map(ToString::to_string).collect();
        v1::Request { seq: 3, all_names, ..v1::Request::default() }
    }

    fn refused(op: &Op, map: &GroupMap) -> Option<String> {
        let error = prepare(op, map, &Address::NONE).err()?;
        assert_eq!(error.reason(), ErrorReason::BadField, "{error:?}");
        Some(error.field)
    }

    /// Returns names of two groups: two of the first, one of the second.
    fn spread(map: &GroupMap) -> [String; 3] {
        let group = |number: u32| {
            let names = (0..).map(|number: u32| number.to_string());
            names.filter(move |name| map.group_of(Name::new(name).unwrap().slot()).number() == number)
        };
        let mut first = group(0);
        [first.next().unwrap(), first.next().unwrap(), group(1).next().unwrap()]
    }

    #[test]
    fn p10_a_part_has_all_names_of_the_whole_in_its_group() {
        let map = GroupMap::even(2).unwrap();
        let [one, two, other] = spread(&map);
        let all = [one.as_str(), two.as_str(), other.as_str()];
        let lock = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            let request = Some(request(&all));
            Op::Lock(v1::LockRequest { names, lease_id: 7, request, ..v1::LockRequest::default() })
        };
        let unlock = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            let request = Some(request(&all));
            Op::Unlock(v1::UnlockRequest { names, lease_id: 7, request, ..v1::UnlockRequest::default() })
        };
        let field = Some("request.all_names".to_owned());
        assert_eq!(refused(&lock(&[&two, &one]), &map), None);
        assert_eq!(refused(&lock(&[&other]), &map), None);
        assert_eq!(refused(&unlock(&[&one, &two]), &map), None);
        for part in [[one.as_str()], [two.as_str()], ["none of them"]] {
            assert_eq!(refused(&lock(&part), &map), field, "{part:?}");
            assert_eq!(refused(&unlock(&part), &map), field, "{part:?}");
        }
        // Two locks of one group under one seq, each declared a part of both: the second would be answered with the
        // outcome of the first.
        assert_eq!(refused(&lock(&[&other]), &GroupMap::single()), field);
    }

    #[test]
    fn p10_what_is_never_taken_apart_is_no_part() {
        let (name, lease_id, fencing_token) = ("a".to_owned(), 7, 5);
        let request = || Some(request(&["a", "b"]));
        let numbered = request().map(|request| v1::Request { lease_id, ..request });
        let ops = [
            Op::Convert(v1::ConvertRequest {
                name: name.clone(),
                lease_id,
                request: request(),
                ..Default::default()
            }),
            Op::Campaign(v1::CampaignRequest {
                name: name.clone(),
                lease_id,
                request: request(),
                ..Default::default()
            }),
            Op::Proclaim(v1::ProclaimRequest {
                name: name.clone(),
                lease_id,
                fencing_token,
                request: request(),
                ..Default::default()
            }),
            Op::Resign(v1::ResignRequest {
                name: name.clone(),
                lease_id,
                request: request(),
                ..Default::default()
            }),
            Op::Put(v1::PutRequest {
                key: name.clone().into(),
                request: numbered.clone(),
                ..Default::default()
            }),
            Op::Delete(v1::DeleteRequest {
                key: name.into(),
                request: numbered.clone(),
                ..Default::default()
            }),
            Op::Txn(v1::TxnRequest { request: numbered, ..Default::default() }),
        ];
        for op in ops {
            assert_eq!(refused(&op, &GroupMap::single()), Some("request.all_names".to_owned()), "{op:?}");
        }
    }
}
