//! The `leases` workload: leases that are granted and revoked.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::Caller;
use std::sync::Arc;
use tokio::time::Instant;

/// Grants a lease and revokes it at once, so that the number of leases does not grow.
pub(crate) struct Leases<C> {
    caller: C,
}

impl<C: Caller> Work<C> for Leases<C> {
    const SERIES: &'static [&'static str] = &["grant", "revoke"];

    async fn prepare(caller: C, _number: usize, _scene: Arc<Scene>) -> Result<Self, Failure> {
        Ok(Leases { caller })
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let began = Instant::now();
        let lease = self.caller.grant().await?;
        let granted = Instant::now();
        self.caller.revoke(lease).await?;
        let ended = Instant::now();
        board.done(ended, &[(0, granted - began), (1, ended - granted)]);
        Ok(())
    }

    fn caller(self) -> C {
        self.caller
    }
}
