//! The rates of this host, by which the costs of joins are estimated: measured once for each fabric, and kept in a file, as
//! the hosts of a cluster are taken to be alike.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use roundel_datafusion::ExchangeOptions;
use roundel_datafusion::engine::Devices;
use roundel_ring::cost::{Rates, calibrate, calibrate_link};
use serde::{Deserialize, Serialize};

use super::host_on;
use crate::{DeviceChoice, EngineError, Fabric, FabricChoice, Result};

/// Rows that are joined to measure rates while a query waits for them, which takes a fifth of a second.
const ROWS_AT_FIRST_USE: usize = 1 << 15;
/// Rows that are joined to measure rates when a user has asked for that.
const ROWS_ASKED_FOR: usize = 1 << 19;
/// Memory of a device that has two places of a ring.
const REGISTERED_BYTES: u64 = 1 << 28;
/// Version of the file's format. Files of other versions are not read.
const VERSION: u32 = 1;
/// Most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// The rates that this process knows.
static KNOWN: Mutex<Option<HashMap<Fabric, Rates>>> = Mutex::new(None);

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// Processors of the host. If they differ from those found, the file is of another host.
    processors: usize,
    rates: Rates,
}

/// The rates of this host with a fabric, if they were [measured](measure_once) before.
pub(crate) fn known_rates(fabric: Fabric) -> Option<Rates> {
    KNOWN.lock().as_ref()?.get(&fabric).copied()
}

/// Makes the rates of this host [known](known_rates), from the file or by measuring them. Rates that cannot be measured stay
/// unknown, and joins are done as they would be without them.
pub(crate) async fn measure_once(fabric: Fabric, devices: &Devices) {
    if fabric == Fabric::Grpc || known_rates(fabric).is_some() {
        return;
    }
    let path = path(fabric);
    if let Some(rates) = path.as_deref().and_then(kept) {
        know(fabric, rates);
        return;
    }
    match measured(fabric, devices, ROWS_AT_FIRST_USE).await {
        Ok(rates) => {
            if let Some(Err(error)) = path.map(|path| keep(&path, rates)) {
                tracing::debug!(%error, "rates are measured again next time");
            }
            know(fabric, rates);
        }
        Err(error) => tracing::warn!(%error, "costs of joins are not known"),
    }
}

/// Rates that were measured and kept.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// The fabric whose ring was measured.
    pub fabric: String,
    /// Where they are kept.
    pub file: PathBuf,
    /// Nanoseconds of a thread, and bytes per second of the link.
    pub rates: Rates,
}

/// Measures the rates of this host for rings over a fabric, in a few seconds, and keeps them for all queries to come.
///
/// # Errors
/// When the fabric is not there or carries no ring, or the file cannot be written.
pub fn calibrate_host(choice: &FabricChoice) -> BoxFuture<'_, Result<Calibration>> {
    Box::pin(async move {
        let fabric = choice.fabric().unwrap_or(Fabric::Shm);
        let devices = Devices::open(&ExchangeOptions {
            fabric: match choice {
                FabricChoice::Auto => DeviceChoice::Shm.into(),
                asked => asked.clone(),
            },
            address: Some(Ipv4Addr::LOCALHOST.into()),
            name: Some("the calibration".to_owned()),
            registered_memory_bytes: REGISTERED_BYTES,
            ..ExchangeOptions::default()
        })?;
        let path = path(fabric).ok_or_else(|| {
            EngineError::Query("no place to keep rates in: set HOME or XDG_CACHE_HOME".into())
        })?;
        let rates = measured(fabric, &devices, ROWS_ASKED_FOR).await?;
        keep(&path, rates).map_err(|error| EngineError::io("keep the rates", error))?;
        Ok(Calibration {
            fabric: fabric.name().to_owned(),
            file: path,
            rates,
        })
    })
}

fn know(fabric: Fabric, rates: Rates) {
    KNOWN.lock().get_or_insert_default().insert(fabric, rates);
}

async fn measured(fabric: Fabric, devices: &Devices, rows: usize) -> Result<Rates> {
    let failed = |error: roundel_ring::RingError| EngineError::Query(error.to_string());
    let node = devices.get(fabric)?;
    let node = node.ok_or_else(|| EngineError::NoFabric(format!("{fabric} carries no ring")))?;
    let rates = calibrate(rows).await.map_err(failed)?;
    let (open, link) = calibrate_link(&host_on(node.fabric()))
        .await
        .map_err(failed)?;
    Ok(Rates {
        open,
        link,
        ..rates
    })
}

/// `$XDG_CACHE_HOME/roundel/rates-shm.json`, which defaults to `~/.cache/roundel/rates-shm.json`, or in the directory
/// `$ROUNDEL_RATES`.
fn path(fabric: Fabric) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cache = || {
        let cache = absolute("XDG_CACHE_HOME");
        let cache = cache.or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        cache.map(|cache| cache.join("roundel"))
    };
    let directory = absolute("ROUNDEL_RATES").or_else(cache)?;
    Some(directory.join(format!("rates-{}.json", fabric.name())))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The rates in a file, if they are some of this host.
fn kept(path: &Path) -> Option<Rates> {
    let is_small = std::fs::metadata(path).is_ok_and(|file| file.len() <= FILE_BYTES_MAX);
    let text = is_small
        .then(|| std::fs::read(path))
        .and_then(std::io::Result::ok)?;
    let kept: Kept = serde_json::from_slice(&text).ok()?;
    let is_own = kept.version == VERSION && kept.processors == processors();
    (is_own && kept.rates.are_sound()).then_some(kept.rates)
}

/// Whole or not at all: others may read it meanwhile.
fn keep(path: &Path, rates: Rates) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    let kept = Kept {
        version: VERSION,
        processors: processors(),
        rates,
    };
    serde_json::to_writer_pretty(&mut file, &kept)?;
    file.flush()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roundel/rates-shm.json");
        assert_eq!(kept(&path), None, "there is none");
        let rates = Rates {
            open: 1e6,
            build: 10.0,
            cluster: 11.0,
            probe: 12.0,
            sort: 2.0,
            pass: 3.0,
            test: 4.0,
            emit: 5.0,
            code: 0.5,
            link: 1e9,
        };
        keep(&path, rates).unwrap();
        assert_eq!(kept(&path), Some(rates));
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [
            ("\"version\": 1", "\"version\": 2"),
            ("\"probe\": 12.0", "\"probe\": -12.0"),
            ("\"link\": 1000000000.0", "\"link\": 0.0"),
            ("\"link\"", "\"lonk\""),
        ] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            assert_eq!(kept(&path), None, "{to}");
        }
    }
}
