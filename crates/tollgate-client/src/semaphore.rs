//! Semaphores: locks with a number of permits, which several owners may hold at once.

use crate::acquire::Acquire;
use crate::session::Session;

/// Semaphore, from [`Session::semaphore`].
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

    /// Returns the semaphore's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the total number of permits.
    pub fn permits(&self) -> u32 {
        self.of
    }

    /// Returns a request for `n` of the permits: await the [`Acquire`], or set its options first.
    pub fn acquire(&self, n: u32) -> Acquire {
        Acquire::new(self.session.clone(), vec![self.name.clone()], None).permits(n, self.of)
    }
}
