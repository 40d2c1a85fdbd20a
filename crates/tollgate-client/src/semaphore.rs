//! Semaphores: locks that several may hold at once, counted.

use crate::acquire::Acquire;
use crate::session::Session;

/// A semaphore, from [`Session::semaphore`].
///
/// ```no_run
/// # async fn example(session: tollgate_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// let workers = session.semaphore("workers", 8);
/// let permit = workers.acquire(2).await?;
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    session: Session,
    name: String,
    of: u32,
}

impl Semaphore {
    pub(crate) fn new(session: Session, name: String, of: u32) -> Semaphore {
        Semaphore { session, name, of }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many permits it has.
    pub fn permits(&self) -> u32 {
        self.of
    }

    /// Takes so many of its permits: wait for the [`Acquire`], or set how it waits first.
    pub fn acquire(&self, n: u32) -> Acquire {
        Acquire::new(self.session.clone(), vec![self.name.clone()], None).permits(n, self.of)
    }
}
