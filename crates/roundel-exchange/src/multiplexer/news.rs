//! What has come about the links of one operator: how each ends. Messages wait in several queues, and it takes a reader
//! a while to take one in. So news of a link are told only when all of its messages that came before are delivered, no
//! matter by whom, and one after the other: a link whose messages have all come is not lost. Knows nothing of regions.

use crate::endpoint::LinkId;
use crate::wire::SequenceDigest;
use parking_lot::Mutex;
use roundel_verbs::CompletionStatus;
use std::collections::VecDeque;

/// What happens to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// So much was sent in all.
    End(SequenceDigest),
    /// No more comes, and not all has.
    Lost(CompletionStatus),
}

/// By what a message of a link is known: group and sequence number.
pub(super) type MessageKey = (u16, u64);

/// The news of an operator's links.
#[derive(Default)]
pub(super) struct NewsOfLinks(Mutex<Vec<NewsOfLink>>);

#[derive(Default)]
struct NewsOfLink {
    /// What has come and has been neither delivered nor told, the oldest first.
    waiting: VecDeque<Waiting>,
    /// So many news are due.
    due: usize,
    /// Somebody tells them.
    telling: bool,
}

#[derive(PartialEq, Eq)]
enum Waiting {
    Message(MessageKey),
    News(News),
}

impl NewsOfLinks {
    fn with<T>(&self, link: LinkId, act: impl FnOnce(&mut NewsOfLink) -> T) -> T {
        let mut links = self.0.lock();
        if links.len() <= link.0 {
            links.resize_with(link.0 + 1, NewsOfLink::default);
        }
        act(&mut links[link.0])
    }

    /// A message has come for a link. To be said before anybody can deliver it.
    pub(super) fn message_comes(&self, link: LinkId, key: MessageKey) {
        let message = Waiting::Message(key);
        self.with(link, |link| link.waiting.push_back(message));
    }

    /// It is delivered. What is due may now be told.
    pub(super) fn message_delivered(&self, link: LinkId, key: MessageKey) {
        self.with(link, |link| {
            let mut waiting = link.waiting.iter();
            // One of the first: others have the few before it in hand.
            let at = waiting.position(|one| *one == Waiting::Message(key));
            at.map(|at| link.waiting.remove(at))
        });
    }

    /// News of a link have come.
    pub(super) fn come(&self, link: LinkId, news: News) {
        let news = Waiting::News(news);
        self.with(link, |link| link.waiting.push_back(news));
    }

    /// It is the turn of the next news of a link to be told.
    pub(super) fn make_due(&self, link: LinkId) {
        self.with(link, |link| link.due += 1);
    }

    /// Tells the news of a link that are due, as far as no message from before them is undelivered and nobody else tells
    /// them; whether there were any.
    pub(super) fn tell(&self, link: LinkId, tell: impl Fn(News)) -> bool {
        let mut told = false;
        while let Some(news) = self.with(link, |link| link.next(told)) {
            tell(news);
            told = true;
        }
        told
    }
}

impl NewsOfLink {
    /// The next news for who tells them, who asks until there are no more.
    fn next(&mut self, is_teller: bool) -> Option<News> {
        if self.telling && !is_teller {
            return None;
        }
        let next = match self.waiting.front() {
            Some(Waiting::News(news)) if self.due > 0 => Some(*news),
            _ => None,
        };
        self.telling = next.is_some();
        if next.is_some() {
            self.due -= 1;
            self.waiting.pop_front();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const LINK: LinkId = LinkId(1);
    const END: News = News::End(SequenceDigest {
        count: 2,
        checksum: 7,
    });
    const LOST: News = News::Lost(CompletionStatus::Flushed);

    fn told(links: &NewsOfLinks, link: LinkId) -> Vec<News> {
        let told = RefCell::new(Vec::new());
        let any = links.tell(link, |news| {
            // Nobody else tells them meanwhile.
            assert!(!links.tell(link, |_| panic!("told twice")));
            told.borrow_mut().push(news);
        });
        let told = told.take();
        assert_eq!(any, !told.is_empty());
        told
    }

    #[test]
    fn news_wait_for_the_messages_of_their_link_and_for_their_turn() {
        let links = NewsOfLinks::default();
        links.message_comes(LINK, (0, 0));
        links.message_comes(LINK, (1, 0));
        links.message_comes(LinkId(0), (0, 0));
        links.come(LINK, END);
        links.come(LINK, LOST);
        assert_eq!(told(&links, LINK), []);
        links.make_due(LINK);
        links.message_delivered(LINK, (1, 0));
        assert_eq!(told(&links, LINK), []);
        // Nor for what comes after them.
        links.message_comes(LINK, (1, 1));
        links.message_delivered(LINK, (0, 0));
        assert_eq!(told(&links, LINK), [END]);
        assert_eq!(told(&links, LINK), []);
        links.make_due(LINK);
        assert_eq!(told(&links, LINK), [LOST]);
        assert_eq!(told(&links, LinkId(9)), []);
    }

    #[test]
    fn what_becomes_due_meanwhile_is_told_by_the_same() {
        let links = NewsOfLinks::default();
        links.come(LINK, END);
        links.make_due(LINK);
        let told = RefCell::new(Vec::new());
        links.tell(LINK, |news| {
            if news == END {
                links.come(LINK, LOST);
                links.make_due(LINK);
            }
            told.borrow_mut().push(news);
        });
        assert_eq!(told.take(), [END, LOST]);
    }
}
