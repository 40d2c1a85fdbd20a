//! More nodes are gone than a group can lose. It need not serve requests then, but must not give wrong answers.

use super::Draw;
use crate::chaos::arena::Arena;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let size = arena.size();
    let majority = size / 2 + 1;
    let count = majority + usize::try_from(draw.rng.below((size - majority + 1) as u64)).unwrap();
    let first = usize::try_from(draw.pick % size as u64).unwrap();
    let gone: Vec<usize> = (0..count).map(|offset| (first + offset) % size).collect();
    let (killed, span) = (draw.rng.percent(50), draw.span_ms(500, 4_000));
    let how = if killed { "kill -9" } else { "SIGSTOP" };
    let ids = arena.ids(gone.iter().copied());
    let number = arena.begin(draw.kind, &format!("{how} nodes {ids:?}, a majority, for {span:?}"));
    for &index in &gone {
        let mut node = arena.node(index).await;
        if killed { node.kill() } else { node.signal("STOP") }
    }
    tokio::time::sleep(span).await;
    for &index in &gone {
        let mut node = arena.node(index).await;
        if killed { node.start(&[]) } else { node.signal("CONT") }
    }
    let mut problems = Vec::new();
    for index in gone {
        let mut node = arena.node(index).await;
        problems.extend(arena.recovered(&mut node).await.err());
    }
    arena.end(number);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
