//! What the queries of a worker failed of.
//!
//! When a task fails, its links close, and the tasks at their other ends may see that before they hear of the failure.
//! Whoever only saw a connection break asks every worker here for the cause.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use url::Url;
use uuid::Uuid;

use crate::calls::Channels;
use crate::error::TransportError;
use crate::failure::task_error;
use crate::protocol::{Cause, Failed, FailureKind};

/// How many failed queries are remembered: the last ones are enough, since whoever asks does so within a second.
const CAUSES_MAX: usize = 256;

/// The first failure of each of the last queries that is not an effect of another one.
#[derive(Clone, Default)]
pub(super) struct Causes(Arc<Mutex<VecDeque<(Uuid, Failed)>>>);

impl Causes {
    /// A task of a query failed.
    pub(super) fn note(&self, query: Uuid, failed: &Failed) {
        if matches!(failed.kind(), FailureKind::Link | FailureKind::Orphaned) {
            return;
        }
        let mut causes = self.0.lock();
        if causes.iter().any(|(known, _)| *known == query) {
            return;
        }
        if causes.len() == CAUSES_MAX {
            causes.pop_front();
        }
        causes.push_back((query, failed.clone()));
    }

    /// What a query failed of, if it did.
    pub(super) fn of(&self, query: Uuid) -> Option<Failed> {
        let causes = self.0.lock();
        let found = causes.iter().find(|(known, _)| *known == query);
        found.map(|(_, failed)| failed.clone())
    }
}

/// What a query failed of on the worker at `url`, if it did and the worker answers.
pub async fn cause(channels: &Channels, url: &Url, query: Uuid) -> Option<TransportError> {
    let asked = Cause {
        query: query.into_bytes().to_vec(),
    };
    let told = channels.exchange(url).await.ok()?.tell_cause(asked).await;
    let failed = told.ok()?.into_inner().failed?;
    Some(task_error(url, &failed).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{failed_with, orphaned};

    #[test]
    fn a_query_has_its_first_cause_and_no_effect_for_one() {
        let causes = Causes::default();
        let query = Uuid::from_u128(1);
        causes.note(query, &orphaned("the query has ended"));
        assert_eq!(causes.of(query), None);
        for message in ["division by zero", "another"] {
            causes.note(query, &failed_with(message.to_owned()));
        }
        let first = causes.of(query).map(|failed| failed.message);
        assert_eq!(first.as_deref(), Some("division by zero"));
        assert_eq!(causes.of(Uuid::from_u128(2)), None);
    }

    #[test]
    fn old_queries_are_forgotten() {
        let causes = Causes::default();
        for query in 0..=CAUSES_MAX as u128 {
            causes.note(Uuid::from_u128(query), &failed_with("x".to_owned()));
        }
        assert_eq!(causes.0.lock().len(), CAUSES_MAX);
        assert_eq!(causes.of(Uuid::nil()), None);
        assert!(causes.of(Uuid::from_u128(CAUSES_MAX as u128)).is_some());
    }
}
