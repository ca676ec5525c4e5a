//! Work that blocks on the disk, kept off the threads that serve calls.

use tokio::runtime::Handle;

/// Does `work` on the runtime's threads for what blocks; here, where there is no tokio runtime.
///
/// # Cancel safety
/// Once polled, the work is done to its end even if the future is dropped.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(runtime) = Handle::try_current() else { return work() };
    match runtime.spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down, and polls nobody again.
        Err(_) => std::future::pending().await,
    }
}
