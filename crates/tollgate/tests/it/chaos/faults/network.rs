//! Broken networks: around one node, in both directions or one, once or repeatedly; or between two sides.
//!
//! Clients still reach every node, so clients of an isolated node must be told to go elsewhere, and never something
//! wrong.

use super::{Draw, FaultKind};
use crate::chaos::arena::{Arena, Cut};
use crate::proxy::Way;
use std::collections::BTreeSet;
use std::time::Instant;

pub(super) async fn run(arena: &Arena, draw: Draw) -> Result<(), String> {
    match draw.kind {
        FaultKind::Split => split(arena, draw).await,
        _ => around_one(arena, draw).await,
    }
}

async fn around_one(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let (index, mut node) = arena.pick(&draw).await;
    let (how, cut) = cut_around(arena.size(), index, &mut draw);
    let span = draw.span_ms(1_000, 5_000);
    let title = arena.title(index).await;
    let number = arena.begin(draw.kind, &format!("{how} {title} for {span:?}"));
    if draw.kind == FaultKind::Flap {
        let until = Instant::now() + span;
        while Instant::now() < until {
            arena.cut(number, cut.clone());
            tokio::time::sleep(draw.span_ms(50, 700)).await;
            arena.mend(number);
            tokio::time::sleep(draw.span_ms(50, 700)).await;
        }
    } else {
        arena.cut(number, cut);
        tokio::time::sleep(span).await;
        arena.mend(number);
    }
    let recovered = arena.recovered(&mut node).await;
    arena.end(number);
    recovered
}

fn cut_around(nodes: usize, index: usize, draw: &mut Draw) -> (&'static str, Cut) {
    let way = if draw.rng.percent(50) { Way::Silent } else { Way::Closed };
    let others = (0..nodes).filter(|other| *other != index);
    let (how, to, from) = match (draw.kind, draw.rng.percent(50)) {
        // A refused connection is refused to both sides: only silence has a direction.
        (FaultKind::OneWay, true) => ("mute", Some(Way::Silent), None),
        (FaultKind::OneWay, false) => ("deafen", None, Some(Way::Silent)),
        _ if way == Way::Silent => ("isolate (silent)", Some(way), Some(way)),
        _ => ("isolate (closed)", Some(way), Some(way)),
    };
    let pairs = others.flat_map(|other| {
        let there = to.map(|way| (index, other, way));
        there.into_iter().chain(from.map(|way| (other, index, way)))
    });
    (how, pairs.collect())
}

/// Splits the nodes: a few, never a majority, see each other and none of the rest.
async fn split(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let size = arena.size();
    let count = 1 + usize::try_from(draw.rng.below((size as u64 - 1) / 2)).unwrap();
    let (first, node) = arena.pick(&draw).await;
    drop(node);
    let few: BTreeSet<usize> = (0..count).map(|offset| (first + offset) % size).collect();
    let way = if draw.rng.percent(50) { Way::Silent } else { Way::Closed };
    let span = draw.span_ms(1_000, 6_000);
    let ids = arena.ids(few.iter().copied());
    let says =
        format!("part nodes {ids:?} from the others ({way:?}, {}) for {span:?}", arena.title(first).await);
    let number = arena.begin(draw.kind, &says);
    let apart = |a: &usize, b: &usize| few.contains(a) != few.contains(b);
    let pairs = (0..size).flat_map(|a| (0..size).map(move |b| (a, b)));
    arena.cut(number, pairs.filter(|(a, b)| apart(a, b)).map(|(a, b)| (a, b, way)).collect());
    tokio::time::sleep(span).await;
    arena.mend(number);
    let mut problems = Vec::new();
    for index in 0..size {
        let mut node = arena.node(index).await;
        problems.extend(arena.recovered(&mut node).await.err());
    }
    arena.end(number);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
