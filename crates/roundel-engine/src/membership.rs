//! Which workers live. One task for each worker listens to its heartbeat.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion_distributed::WorkerResolver;
use parking_lot::RwLock;
use roundel_datafusion::Channels;
use roundel_datafusion::engine::status_error;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::protocol::VERSION;
use crate::protocol::control::control_client::ControlClient;
use crate::protocol::control::{Beat, WatchRequest};
use crate::{EngineError, Result};

/// A worker that is silent for longer is taken for dead. A process that ends closes its
/// connections, and a machine that vanishes stops to answer keepalives, which both show within
/// seconds; this is for a process that hangs, and a busy one must not be taken for one.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Pause before a dead worker is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Longest wait for a worker's first answer.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(5);

/// What is known of one worker.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// It answers, and this is who it is.
    Alive(Beat),
    /// It does not, and this is why.
    Dead(EngineError),
}

/// The workers of a cluster, and which of them live.
#[derive(Debug)]
pub(crate) struct Membership {
    members: Vec<Member>,
    /// The extensions that each member has.
    extensions: Vec<String>,
    /// Counts the changes of any member's state.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Member {
    url: Url,
    state: RwLock<State>,
}

impl Membership {
    /// Asks every worker who it is and listens to all from then on. Fails when one does not
    /// answer, is of another version, or has other extensions.
    pub(crate) async fn watch(
        urls: Vec<Url>,
        channels: &Channels,
        extensions: Vec<String>,
    ) -> Result<(Arc<Self>, Vec<AbortOnDropHandle<()>>)> {
        let firsts = urls
            .iter()
            .map(|url| first_beat(url, channels, &extensions));
        let firsts = futures::future::try_join_all(firsts).await?;
        let members = urls
            .into_iter()
            .zip(firsts)
            .map(|(url, (beat, _))| Member {
                url,
                state: RwLock::new(State::Alive(beat)),
            })
            .collect();
        let membership = Arc::new(Self {
            members,
            extensions,
            changes: watch::Sender::new(0),
        });
        let listeners = (0..membership.members.len())
            .map(|index| {
                let listener = listen(Arc::clone(&membership), index, channels.clone());
                AbortOnDropHandle::new(tokio::spawn(listener))
            })
            .collect();
        Ok((membership, listeners))
    }

    /// URLs of all workers, dead or alive.
    pub(crate) fn urls(&self) -> Vec<Url> {
        self.members.iter().map(|m| m.url.clone()).collect()
    }

    /// URL and heartbeat of each live worker. The heartbeat says who the worker is.
    pub(crate) fn beats(&self) -> Vec<(Url, Beat)> {
        let beat = |member: &Member| match &*member.state.read() {
            State::Alive(beat) => Some((member.url.clone(), beat.clone())),
            State::Dead(_) => None,
        };
        self.members.iter().filter_map(beat).collect()
    }

    /// URLs and incarnations of the workers that live.
    pub(crate) fn live(&self) -> Vec<(Url, String)> {
        let live = |member: &Member| match &*member.state.read() {
            State::Alive(beat) => Some((member.url.clone(), beat.incarnation.clone())),
            State::Dead(_) => None,
        };
        self.members.iter().filter_map(live).collect()
    }

    /// Why workers that do not live do not, one for each.
    pub(crate) fn missing(&self) -> Vec<EngineError> {
        let missing = |member: &Member| match &*member.state.read() {
            State::Alive(_) => None,
            State::Dead(error) => Some(error.clone()),
        };
        self.members.iter().filter_map(missing).collect()
    }

    /// Whether the worker at `url` lives and was not restarted since it had `incarnation`.
    pub(crate) fn check(&self, url: &Url, incarnation: &str) -> Result<()> {
        let lost = |reason: &str| EngineError::WorkerLost {
            url: url.to_string(),
            reason: reason.to_owned(),
        };
        let member = self
            .members
            .iter()
            .find(|member| member.url == *url)
            .ok_or_else(|| lost("it is not part of the cluster"))?;
        match &*member.state.read() {
            State::Alive(beat) if beat.incarnation == incarnation => Ok(()),
            State::Alive(_) => Err(lost("it was restarted")),
            State::Dead(error) => Err(error.clone()),
        }
    }

    /// Completes when one of `workers` is lost.
    pub(crate) async fn lost(&self, workers: &[(Url, String)]) -> EngineError {
        let mut changes = self.changes.subscribe();
        loop {
            for (url, incarnation) in workers {
                if let Err(error) = self.check(url, incarnation) {
                    return error;
                }
            }
            if changes.changed().await.is_err() {
                // The sender is in self, so it is there.
                std::future::pending::<()>().await;
            }
        }
    }

    fn set(&self, index: usize, state: State) {
        *self.members[index].state.write() = state;
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Hands the live workers to datafusion-distributed.
pub(crate) struct LiveWorkers(pub(crate) Arc<Membership>);

impl WorkerResolver for LiveWorkers {
    /// A lone worker is listed twice: with one URL, datafusion-distributed would plan single
    /// tasks and run them in the coordinator, where no shard of a memory table is.
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        let mut urls: Vec<Url> = self.0.live().into_iter().map(|(url, _)| url).collect();
        match urls.len() {
            0 => Err(EngineError::WorkerLost {
                url: join(&self.0.urls()),
                reason: "no worker of the cluster answers".to_owned(),
            }
            .into()),
            1 => {
                urls.push(urls[0].clone());
                Ok(urls)
            }
            _ => Ok(urls),
        }
    }
}

fn join(urls: &[Url]) -> String {
    let urls: Vec<&str> = urls.iter().map(Url::as_str).collect();
    urls.join(", ")
}

type Beats = tonic::Streaming<Beat>;

/// Opens a worker's heartbeat, and checks that it is of this version and has these extensions.
async fn first_beat(
    url: &Url,
    channels: &Channels,
    extensions: &[String],
) -> Result<(Beat, Beats)> {
    let unreachable = |reason: String| EngineError::WorkerUnreachable {
        url: url.to_string(),
        reason,
    };
    let refused = |status: tonic::Status| match status_error(url, &status).into() {
        EngineError::WorkerLost { reason, .. } => unreachable(reason),
        other => other,
    };
    let mut client = ControlClient::new(channels.get(url).await?);
    let open = async {
        let beats = client.watch(WatchRequest {}).await.map_err(refused)?;
        let mut beats = beats.into_inner();
        let beat = beats.message().await.map_err(refused)?;
        let beat = beat.ok_or_else(|| unreachable("it sent no heartbeat".to_owned()))?;
        Ok::<_, EngineError>((beat, beats))
    };
    let (beat, beats) = tokio::time::timeout(FIRST_ANSWER_MAX, open)
        .await
        .map_err(|_| unreachable(format!("no answer within {FIRST_ANSWER_MAX:?}")))??;
    if beat.version != VERSION {
        return Err(EngineError::Version {
            url: url.to_string(),
            theirs: beat.version,
            ours: VERSION.to_owned(),
        });
    }
    if beat.extensions != extensions {
        let named = |names: &[String]| match names.is_empty() {
            true => "no extensions".to_owned(),
            false => names.join(", "),
        };
        return Err(EngineError::Extensions {
            url: url.to_string(),
            theirs: named(&beat.extensions),
            ours: named(extensions),
        });
    }
    Ok((beat, beats))
}

/// Keeps one member's state true, for ever.
async fn listen(membership: Arc<Membership>, index: usize, channels: Channels) {
    let url = membership.members[index].url.clone();
    loop {
        let error = match first_beat(&url, &channels, &membership.extensions).await {
            Ok((beat, mut beats)) => {
                membership.set(index, State::Alive(beat));
                until_silent(&url, &mut beats).await
            }
            Err(error) => error,
        };
        membership.set(index, State::Dead(error));
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn until_silent(url: &Url, beats: &mut Beats) -> EngineError {
    let lost = |reason: String| EngineError::WorkerLost {
        url: url.to_string(),
        reason,
    };
    loop {
        match tokio::time::timeout(SILENCE_MAX, beats.message()).await {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return lost("it ended".to_owned()),
            Ok(Err(status)) => return status_error(url, &status).into(),
            Err(_) => return lost(format!("no sign of life for {SILENCE_MAX:?}")),
        }
    }
}
