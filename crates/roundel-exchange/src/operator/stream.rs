//! The batches of one partition from one source, for its reader.

use super::coalesce::Coalesce;
use super::lane::Lane;
use super::link_end::LinkEnd;
use crate::account::{Account, Clock, Spending};
use crate::endpoint::{Fabric, LinkId};
use crate::error::{ExchangeError, Result};
use crate::frame::FrameDecoder;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use futures::Stream;
use roundel_verbs::completion_queue::BoxFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The batches of one partition from one source.
pub struct PartitionStream {
    end: Arc<LinkEnd>,
    partition: u32,
    /// Of the partition's links, which may bring more; one for each unit of the source.
    open: Vec<bool>,
    /// Which of them is asked first.
    turn: usize,
    decoder: FrameDecoder,
    joined: Coalesce,
    fabric: Fabric,
    repeat_interval: Duration,
    /// Runs while nothing comes, so that silence is noticed.
    silence: Option<BoxFuture<'static, ()>>,
    clock: Clock,
    /// It has waited for long: its source may wait for credit on another lane, which nobody reads.
    helping: bool,
    done: bool,
}

impl PartitionStream {
    /// The rows of a partition that come over a link; nothing for `repeat_interval` is silence.
    pub(super) fn new(
        fabric: &Fabric,
        end: Arc<LinkEnd>,
        partition: u32,
        decoder: FrameDecoder,
        joined: Coalesce,
        repeat_interval: Duration,
    ) -> Self {
        let account = end.account(partition).cloned();
        let account = account.unwrap_or_else(|| Account::new(fabric.context.clone()));
        Self {
            open: vec![true; end.lane(partition).1.len()],
            turn: 0,
            clock: Clock::new(account, Spending::Reader),
            end,
            partition,
            decoder,
            joined,
            fabric: fabric.clone(),
            repeat_interval,
            silence: None,
            helping: false,
            done: false,
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.decoder.schema()
    }

    fn poll_frame(&mut self) -> Poll<Option<Result<Buffer>>> {
        let (lane, links) = self.end.lane(self.partition);
        for number in (self.turn..links.len()).chain(0..self.turn) {
            if !self.open[number] {
                continue;
            }
            match lane.poll_frame((links[number], self.partition), &self.end.peer) {
                Poll::Ready(None) => self.open[number] = false,
                Poll::Ready(found) => {
                    self.turn = (number + 1) % links.len();
                    return Poll::Ready(found);
                }
                Poll::Pending => {}
            }
        }
        match self.open.contains(&true) {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }

    /// Has this task woken when there is something on a lane.
    fn wait(&self, lane: &Lane, links: &[LinkId], cx: &mut Context<'_>) {
        for link in links {
            lane.readers.wait((*link, self.partition), cx);
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let interval = self.repeat_interval;
        let context = &self.fabric.context;
        let silence = self.silence.get_or_insert_with(|| context.sleep(interval));
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.silence = None;
        let (lane, _) = self.end.lane(self.partition);
        lane.state.lock().endpoint.on_silence();
        lane.readers.wake();
        self.helping = self.end.lanes.len() > 1;
        Poll::Ready(())
    }

    /// Takes what has arrived on the other lanes, and will be woken when there is more.
    fn help(&self, cx: &mut Context<'_>) {
        let (own, _) = self.end.lane(self.partition);
        for (lane, links) in &self.end.lanes {
            if Arc::ptr_eq(lane, own) {
                continue;
            }
            self.wait(lane, links, cx);
            let mut state = lane.state.lock();
            while state.pump_once(None) {}
            state.endpoint.on_silence();
        }
    }

    /// The next frame; `None` in place of it when none has come for a while.
    fn poll_next_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Option<Result<Buffer>>>> {
        let mut found = self.poll_frame();
        if found.is_pending() {
            // Armed first, asked once more after: what comes in between wakes this task.
            let (lane, links) = self.end.lane(self.partition);
            self.wait(lane, links, cx);
            found = self.poll_frame();
        }
        if found.is_pending() {
            if self.helping {
                self.help(cx);
            }
            if self.poll_silence(cx).is_pending() {
                return Poll::Pending;
            }
            return Poll::Ready(None);
        }
        self.silence = None;
        self.helping = false;
        found.map(Some)
    }

    fn decode(&mut self, frame: Buffer) -> Result<()> {
        let refused = |error| ExchangeError::frame(&self.end.peer, error);
        let batch = self.decoder.decode(frame).map_err(refused)?;
        self.joined.push(batch).map_err(ExchangeError::joining)
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            if let Some(batch) = self.joined.next() {
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.done {
                return Poll::Ready(None);
            }
            let taken = match std::task::ready!(self.poll_next_frame(cx)) {
                Some(Some(Ok(frame))) => self.decode(frame),
                Some(Some(Err(error))) => Err(error),
                // The rest, or what has waited for more for long enough.
                end_or_silence => {
                    self.done = end_or_silence.is_some();
                    self.joined.flush().map_err(ExchangeError::joining)
                }
            };
            if let Err(error) = taken {
                self.done = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}

impl Stream for PartitionStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let turn = self.clock.begin(cx);
        let polled = self.poll_batch(&mut turn.context());
        self.clock.end(turn, polled.is_pending());
        if matches!(polled, Poll::Ready(Some(Ok(_)))) {
            self.clock.waits(Spending::Reader);
        }
        polled
    }
}

impl Drop for PartitionStream {
    fn drop(&mut self) {
        let (lane, links) = self.end.lane(self.partition);
        for link in links {
            lane.state.lock().discard(*link, self.partition);
        }
    }
}
