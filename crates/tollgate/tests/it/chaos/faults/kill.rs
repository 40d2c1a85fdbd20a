//! A node is killed with SIGKILL, and comes back on its data.

use super::Draw;
use crate::chaos::arena::Arena;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let (index, mut node) = arena.pick(&draw).await;
    let number = arena.begin(draw.kind, &format!("kill -9 {}", arena.title(index).await));
    node.kill();
    tokio::time::sleep(draw.span_ms(0, 3_000)).await;
    node.start(&[]);
    let recovered = arena.recovered(&mut node).await;
    arena.end(number);
    recovered
}
