//! Disks that are slow, that fail, and that are full. A failing disk must stop its node (P15), which is then started
//! again; a full disk must not, and free space brings the node back.

use super::{Draw, FaultKind};
use crate::chaos::arena::Arena;
use crate::cluster::Node;
use crate::strace::Tampering;
use std::time::{Duration, Instant};

/// A node that writes has met the bad disk after this time.
const NOTICED: Duration = Duration::from_secs(20);

/// Exit code of a node whose disk failed.
const DISK_FAILED: i32 = 70;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let (index, mut node) = arena.pick(&draw).await;
    let title = arena.title(index).await;
    let (number, done) = match draw.kind {
        FaultKind::SlowDisk => {
            let (delay_ms, span) = (50 + draw.rng.below(750), draw.span_ms(1_500, 5_000));
            let says = format!("{delay_ms} ms more for each fsync of {title} for {span:?}");
            let number = arena.begin(draw.kind, &says);
            let how = format!("delay_enter={}", delay_ms * 1_000);
            let tampering = tokio::task::block_in_place(|| Tampering::with_fsync(&node, &how));
            (number, lasts(tampering, span).await)
        }
        FaultKind::FullDisk => {
            let span = draw.span_ms(1_000, 4_000);
            let number = arena.begin(draw.kind, &format!("disk of {title} full for {span:?}"));
            let tampering = tokio::task::block_in_place(|| Tampering::with_room(&node));
            (number, lasts(tampering, span).await)
        }
        _ => {
            let number = arena.begin(draw.kind, &format!("fsync of {title} fails"));
            (number, fails(&mut node).await)
        }
    };
    let recovered = arena.recovered(&mut node).await;
    arena.end(number);
    done.and(recovered)
}

async fn lasts(tampering: Tampering, span: Duration) -> Result<(), String> {
    tokio::time::sleep(span).await;
    tokio::task::block_in_place(|| drop(tampering));
    Ok(())
}

/// Makes fsync fail: the node must stop, say why, and come back.
async fn fails(node: &mut Node) -> Result<(), String> {
    let tampering = tokio::task::block_in_place(|| Tampering::with_fsync(node, "error=EIO"));
    let until = Instant::now() + NOTICED;
    let status = loop {
        if let Some(status) = node.exited() {
            break Some(status);
        }
        if Instant::now() > until {
            break None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    tokio::task::block_in_place(|| drop(tampering));
    let Some(status) = status else {
        return Err(format!("{} still runs {NOTICED:?} after its fsyncs began to fail", node.title()));
    };
    node.start(&[]);
    if status.code() == Some(DISK_FAILED) {
        return Ok(());
    }
    Err(format!("a failed fsync ended {} with {status}, not with {DISK_FAILED}", node.title()))
}
