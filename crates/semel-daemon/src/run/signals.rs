//! Signals: the first SIGINT or SIGTERM drains, the second ends the process at once. An at-least-once broker
//! delivers again what was under way, and the ledger knows what was committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::out;

/// Tells consumers to drain, and remembers which signal said so.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    tell: Arc<watch::Sender<bool>>,
    exit: Arc<AtomicU8>,
}

impl Shutdown {
    /// Listens from now on.
    ///
    /// # Errors
    ///
    /// The process may not listen to signals.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let shutdown = Self {
            tell: Arc::new(watch::Sender::new(false)),
            exit: Arc::new(AtomicU8::new(Exit::Done.code())),
        };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let listener = shutdown.clone();
        tokio::spawn(async move {
            let exit = tokio::select! {
                _ = interrupt.recv() => Exit::Interrupted,
                _ = terminate.recv() => Exit::Terminated,
            };
            out::say("draining: units under way end first; a second signal ends at once");
            listener.exit.store(exit.code(), Ordering::SeqCst);
            listener.now();
            let exit = tokio::select! {
                _ = interrupt.recv() => Exit::Interrupted,
                _ = terminate.recv() => Exit::Terminated,
            };
            std::process::exit(i32::from(exit.code()));
        });
        Ok(shutdown)
    }

    /// Hears no signal.
    #[cfg(test)]
    pub(crate) fn deaf() -> Self {
        Self {
            tell: Arc::new(watch::Sender::new(false)),
            exit: Arc::new(AtomicU8::new(Exit::Done.code())),
        }
    }

    /// Drain now.
    pub(crate) fn now(&self) {
        self.tell.send_replace(true);
    }

    /// Waits for the word to drain.
    pub(crate) async fn told(&self) {
        let mut heard = self.tell.subscribe();
        // The sender is ours, so it is there as long as we wait.
        let _ = heard.wait_for(|told| *told).await;
    }

    /// The exit code of a signal that came, if one did.
    pub(crate) fn exit(&self) -> Option<Exit> {
        let code = self.exit.load(Ordering::SeqCst);
        [Exit::Interrupted, Exit::Terminated]
            .into_iter()
            .find(|exit| exit.code() == code)
    }
}
