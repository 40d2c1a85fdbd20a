//! Every node is asked to end and started again, one after the other, as in an upgrade of a cluster.

use super::Draw;
use crate::chaos::arena::Arena;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let number = arena.begin(draw.kind, "rolling restart of all nodes");
    let first = usize::try_from(draw.pick % arena.size() as u64).unwrap();
    let mut done = Ok(());
    for index in (0..arena.size()).map(|offset| (first + offset) % arena.size()) {
        let mut node = arena.node(index).await;
        node.signal("TERM");
        let status = node.until_exited().await;
        if status.code() != Some(0) {
            done = Err(format!("SIGTERM ended {} with {status}", node.title()));
        }
        tokio::time::sleep(draw.span_ms(0, 300)).await;
        node.start(&[]);
        done = done.and(arena.recovered(&mut node).await);
    }
    arena.end(number);
    done
}
