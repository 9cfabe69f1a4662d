//! The connections of a setting: which thread of which node asks which. Every node makes the same list.

use super::setting::{Paradigm, Setting};

/// A connection at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Node, from 0.
    pub node: usize,
    /// Thread of its kind on that node.
    pub thread: usize,
    /// Number of the connection at that thread.
    pub connection: usize,
}

/// A connection between a thread that asks and one that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The end that asks.
    pub requester: Place,
    /// The end that answers.
    pub responder: Place,
}

impl Setting {
    /// Threads of nodes before this one: of those that ask and of those that answer.
    pub(super) fn threads_before(&self, node: usize) -> usize {
        let (asks, answers) = (self.threads, self.answering_threads());
        let (first, others) = match self.paradigm {
            Paradigm::ManyToOne => (answers, asks),
            Paradigm::OneToMany => (asks, answers),
            Paradigm::ManyToMany => (asks + answers, asks + answers),
        };
        match node {
            0 => 0,
            _ => first + (node - 1) * others,
        }
    }

    /// All connections, in an order that all nodes share. In M:1 and 1:M the one is node 0.
    pub fn links(&self) -> Vec<Link> {
        let (asking, answering): (Vec<_>, Vec<_>) = match self.paradigm {
            Paradigm::ManyToOne => ((1..=self.nodes).collect(), vec![0]),
            Paradigm::OneToMany => (vec![0], (1..=self.nodes).collect()),
            Paradigm::ManyToMany => ((0..self.nodes).collect(), (0..self.nodes).collect()),
        };
        let (threads, answering_threads) = (self.threads, self.answering_threads());
        let nodes = self.all_nodes();
        let mut asked = vec![0; nodes * threads];
        let mut served = vec![0; nodes * answering_threads];
        let mut spread = vec![0; nodes];
        let mut links = Vec::new();
        let next = |count: &mut usize| std::mem::replace(count, *count + 1);
        for from in asking {
            for thread in 0..threads {
                for to in answering.iter().copied().filter(|to| *to != from) {
                    // Thread k asks thread k where there are as many; else they are spread evenly.
                    let answers = match answering_threads == threads {
                        true => thread,
                        false => next(&mut spread[to]) % answering_threads,
                    };
                    links.push(Link {
                        requester: Place {
                            node: from,
                            thread,
                            connection: next(&mut asked[from * threads + thread]),
                        },
                        responder: Place {
                            node: to,
                            thread: answers,
                            connection: next(&mut served[to * answering_threads + answers]),
                        },
                    });
                }
            }
        }
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;

    fn setting(paradigm: Paradigm, nodes: usize, threads: usize) -> Setting {
        Setting {
            threads,
            ..Setting::new(paradigm, Protocol::WriteWrite, nodes)
        }
    }

    #[test]
    fn there_are_as_many_as_in_the_paper() {
        // P * S at the responder; Q * S at the requester; (N - 1) * 2 * S at each node.
        assert_eq!(setting(Paradigm::ManyToOne, 28, 16).links().len(), 448);
        assert_eq!(setting(Paradigm::OneToMany, 28, 16).links().len(), 448);
        let all = setting(Paradigm::ManyToMany, 28, 2).links();
        let of_one = all
            .iter()
            .filter(|link| link.requester.node == 5 || link.responder.node == 5);
        assert_eq!(of_one.count(), 27 * 2 * 2);
    }

    #[test]
    fn places_are_counted_without_gaps() {
        for paradigm in Paradigm::ALL {
            let setting = Setting {
                responder_threads: Some(2),
                ..setting(paradigm, 4, 3)
            };
            let links = setting.links();
            let ends: [fn(&Link) -> Place; 2] = [|link| link.requester, |link| link.responder];
            for end in ends {
                let mut places: Vec<_> = links.iter().map(end).collect();
                places.sort_by_key(|place| (place.node, place.thread, place.connection));
                for pair in places.windows(2) {
                    let same = (pair[0].node, pair[0].thread) == (pair[1].node, pair[1].thread);
                    let wanted = if same { pair[0].connection + 1 } else { 0 };
                    assert_eq!(pair[1].connection, wanted, "{paradigm}");
                }
                // No thread has more than one connection more than another.
                let counts = |place: &Place| {
                    places
                        .iter()
                        .filter(|other| (other.node, other.thread) == (place.node, place.thread))
                        .count()
                };
                let of_node = |node| places.iter().filter(move |place| place.node == node);
                for place in &places {
                    let all: Vec<_> = of_node(place.node).map(counts).collect();
                    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
                    assert!(most - least <= 1, "{paradigm}");
                }
            }
        }
    }

    #[test]
    fn nobody_asks_itself() {
        for paradigm in Paradigm::ALL {
            let links = setting(paradigm, 3, 2).links();
            assert!(
                links
                    .iter()
                    .all(|link| link.requester.node != link.responder.node)
            );
        }
    }
}
