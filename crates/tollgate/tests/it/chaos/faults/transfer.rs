//! An operator transfers the leadership of a group to another node.
//!
//! The transfer may be refused: the node may be cut off or behind. Only wrong answers count.

use super::Draw;
use crate::chaos::arena::Arena;
use std::time::Duration;
use tollgate_proto::v1::TransferRequest;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let leaders = arena.leaders().await;
    let Some(nth) = draw.pick.checked_rem(leaders.len() as u64) else { return Ok(()) };
    let Some((&group, &leader)) = leaders.iter().nth(usize::try_from(nth).unwrap()) else { return Ok(()) };
    let to = (leader + 1 + usize::try_from(draw.rng.below(arena.size() as u64 - 1)).unwrap()) % arena.size();
    let says = format!("transfer group {group} from node {} to node {}", arena.id(leader), arena.id(to));
    let number = arena.begin(draw.kind, &says);
    let channel = arena.ports(leader).channel(Duration::from_secs(3));
    let asked = TransferRequest { group_id: group, node_id: arena.id(to), passed_on: false };
    let _ = AdminServiceClient::new(channel).transfer(asked).await;
    arena.end(number);
    Ok(())
}
