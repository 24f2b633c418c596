//! Lets other tasks run, so that a seed decides how units interleave.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Yields this many times to the runtime.
#[derive(Debug)]
pub(crate) struct Pause(pub(crate) u64);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
