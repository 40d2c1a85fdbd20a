//! Gateways that are killed, paused, or restarted in order. No node is touched: clients of another gateway, or of none,
//! must notice nothing.

use super::{Draw, FaultKind};
use crate::chaos::arena::Arena;

pub(super) async fn run(arena: &Arena, mut draw: Draw) -> Result<(), String> {
    let Some(mut gateway) = arena.pick_gateway(&draw).await else { return Ok(()) };
    let (title, span) = (gateway.title(), draw.span_ms(0, 2_000));
    let mut done = Ok(());
    let number = match draw.kind {
        FaultKind::GatewayPause => {
            let number = arena.begin(draw.kind, &format!("SIGSTOP {title} for {span:?}"));
            gateway.signal("STOP");
            tokio::time::sleep(span).await;
            gateway.signal("CONT");
            number
        }
        FaultKind::GatewayKill => {
            let number = arena.begin(draw.kind, &format!("kill -9 {title} for {span:?}"));
            gateway.kill();
            tokio::time::sleep(span).await;
            arena.start_gateway(&mut gateway);
            number
        }
        _ => {
            let number = arena.begin(draw.kind, &format!("restart {title}"));
            gateway.signal("TERM");
            let status = gateway.until_exited().await;
            if status.code() != Some(0) {
                done = Err(format!("SIGTERM ended {title} with {status}"));
            }
            arena.start_gateway(&mut gateway);
            number
        }
    };
    let recovered = arena.recovered(&mut gateway).await;
    arena.end(number);
    done.and(recovered)
}
