//! The signals that end a command, so that it can clean up first.

use std::io;

use futures::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Watches the signals from its creation on: one that comes while nobody waits is not lost.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes the signals over; from now on they no longer end the process by themselves.
    pub fn watch() -> Result<Self, Failure> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let failed = |e: io::Error| Failure::Run(format!("cannot watch for signals: {e}"));
        let [interrupt, terminate, hangup] = kinds.map(|kind| signal(kind).map_err(failed));
        Ok(Self {
            interrupt: interrupt?,
            terminate: terminate?,
            hangup: hangup?,
        })
    }

    /// Waits for the work, unless a signal ends it first.
    pub async fn or_signal<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            signal = self.any() => Err(signal),
        }
    }

    /// Waits for a signal that ends the command.
    pub async fn any(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Failure::Signal(kind.as_raw_value())
    }

    /// Waits for a signal that ends the command, other than Ctrl-C.
    pub async fn terminated(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Failure::Signal(kind.as_raw_value())
    }

    /// Forgets a Ctrl-C that came while nothing ran that it could have been meant for.
    pub fn forget_interrupts(&mut self) {
        while self.interrupt.recv().now_or_never().flatten().is_some() {}
    }

    /// Whether a [`Failure::Signal`] was Ctrl-C.
    pub fn is_interrupt(signal: i32) -> bool {
        signal == SignalKind::interrupt().as_raw_value()
    }
}
