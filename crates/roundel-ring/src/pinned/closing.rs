//! How all hosts of a pinned ring end it: each says that it closes once its queries have ended, then those that leave hand
//! their fragments over, and each sends its last element. Knows what is to be said, and not how it goes around.

use super::Fragment;
use super::message::Message;
use crate::roundabout::Place;
use arrow::array::RecordBatch;
use futures::channel::oneshot;

/// What is known of the end of a ring.
pub(super) struct Closing {
    place: Place,
    /// Whether this host was asked to close the ring: whether it leaves, and who waits for its rows.
    asked: Option<(bool, oneshot::Sender<Vec<RecordBatch>>)>,
    /// By place: whether it leaves, once it is closing.
    leaving: Vec<Option<bool>>,
    /// The last element of this host is said.
    said_last: bool,
    /// Rows of hosts that leave, which are this host's from now on.
    adopted: Vec<RecordBatch>,
}

impl Closing {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            asked: None,
            leaving: vec![None; place.hosts],
            said_last: false,
            adopted: Vec::new(),
        }
    }

    pub(super) fn ask(&mut self, leaves: bool, done: oneshot::Sender<Vec<RecordBatch>>) {
        self.asked = Some((leaves, done));
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Another host is closing.
    pub(super) fn hear(&mut self, place: usize, leaves: bool) {
        self.leaving[place] = Some(leaves);
    }

    /// The last element of this host is said.
    pub(super) fn say(&mut self) {
        self.said_last = true;
    }

    pub(super) fn is_said(&self) -> bool {
        self.said_last
    }

    /// What a host without queries has to say now, which has so many fragments.
    pub(super) fn go_on(&mut self, fragments: usize) -> Vec<Message> {
        let Some((leaves, _)) = self.asked else {
            return Vec::new();
        };
        if self.said_last {
            return Vec::new();
        }
        let mut messages = Vec::new();
        if self.leaving[self.place.number].is_none() {
            self.leaving[self.place.number] = Some(leaves);
            messages.push(Message::Closing { leaves });
        }
        if self.leaving.iter().all(Option::is_some) {
            if self.hands_over() {
                let numbers = 0..fragments as u32;
                messages.extend(numbers.map(|number| Message::Handover { number }));
            }
            messages.push(Message::Last);
        }
        messages
    }

    fn stayers(&self) -> impl Iterator<Item = usize> + '_ {
        let places = self.leaving.iter().enumerate();
        let stay = places.filter(|(_, leaves)| **leaves == Some(false));
        stay.map(|(place, _)| place)
    }

    /// Whether there are others to whom this host leaves what it has.
    fn hands_over(&self) -> bool {
        self.leaving[self.place.number] == Some(true) && self.stayers().next().is_some()
    }

    /// Whether a fragment of a host that leaves is this one's from now on: those that stay share them.
    pub(super) fn adopts(&self, number: u32) -> bool {
        let stayers: Vec<_> = self.stayers().collect();
        let next = number as usize % stayers.len().max(1);
        stayers.get(next) == Some(&self.place.number)
    }

    pub(super) fn adopt(&mut self, rows: RecordBatch) {
        self.adopted.push(rows);
    }

    /// All hosts have come to the end. The caller that closed the ring gets the rows of this host.
    pub(super) fn end(self, own: &[Fragment]) {
        let kept = own.iter().filter(|_| !self.hands_over());
        let kept = kept.map(|fragment| fragment.rows.clone());
        let kept = kept.chain(self.adopted.iter().cloned()).collect();
        if let Some((_, done)) = self.asked {
            // The caller that closed it may be gone.
            let _ = done.send(kept);
        }
    }
}
