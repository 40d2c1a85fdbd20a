//! A node is paused and resumed, as by a long garbage collection or the migration of its machine.

use super::Draw;
use crate::chaos::arena::Arena;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let (index, mut node) = arena.pick(&draw).await;
    let span = draw.span_ms(200, 5_000);
    let title = arena.title(index).await;
    let number = arena.begin(draw.kind, &format!("SIGSTOP {title} for {span:?}"));
    node.signal("STOP");
    tokio::time::sleep(span).await;
    node.signal("CONT");
    let recovered = arena.recovered(&mut node).await;
    arena.end(number);
    recovered
}
