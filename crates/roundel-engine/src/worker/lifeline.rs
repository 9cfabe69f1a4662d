//! When a worker ends: on a signal, or when the process that started it is gone.

use std::future::Future;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::spill_dir::{self, SpillDir};
use crate::{EngineError, Result};

/// A worker whose runtime does not notice its end within this time is ended regardless.
const GRACE: Duration = Duration::from_millis(500);

/// Completes when the worker is to end.
pub(super) fn stopped(
    lifeline: bool,
    spill_dir: &Arc<SpillDir>,
) -> Result<impl Future<Output = ()> + use<>> {
    let watch = |kind| signal(kind).map_err(|e| EngineError::io("watch for signals", e));
    let mut interrupt = watch(SignalKind::interrupt())?;
    let mut terminate = watch(SignalKind::terminate())?;
    let cut = match lifeline {
        true => Some(lifeline_cut(spill_dir.path().to_owned())?),
        false => None,
    };
    Ok(async move {
        let cut = async {
            match cut {
                // An error means that the thread is gone, and with it the lifeline.
                Some(cut) => drop(cut.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = cut => {}
        }
    })
}

/// Fires when standard input closes. A thread of its own watches it, so that even a runtime
/// whose threads are all busy cannot keep the process.
fn lifeline_cut(spill_dir: PathBuf) -> Result<oneshot::Receiver<()>> {
    let (cut, is_cut) = oneshot::channel();
    let watch = move || {
        let mut ignored = [0; 256];
        let mut stdin = std::io::stdin().lock();
        while !matches!(stdin.read(&mut ignored), Ok(0) | Err(_)) {}
        let _ = cut.send(());
        std::thread::sleep(GRACE);
        spill_dir::remove(&spill_dir);
        std::process::exit(0);
    };
    std::thread::Builder::new()
        .name("lifeline".to_owned())
        .spawn(watch)
        .map_err(|e| EngineError::io("start a thread", e))?;
    Ok(is_cut)
}
