//! A buffer of the receiver's that messages are written to, and how one is written there and told of (section 5.5).

use crate::design::Notification;
use crate::link::queue::RemoteQueue;
use crate::link::seal::with_seal;
use roundel_verbs::{Payload, RemoteAddress, SendOperation, SendRequest};

/// A buffer of the receiver's.
pub(crate) struct Slot {
    pub(crate) at: RemoteAddress,
    pub(crate) bytes: usize,
    pub(crate) number: u32,
}

impl Slot {
    /// The request that writes a message, and the one that tells of it in the receiver's queue where there is one
    /// (`told`), with these marks. A payload in a buffer has its seal behind it already, where there is to be one.
    ///
    /// # Errors
    /// When the message is longer than the buffer.
    pub(crate) fn write(
        &self,
        notification: Notification,
        told: Option<&mut RemoteQueue>,
        payload: Payload,
        ids: [u64; 2],
    ) -> Result<Vec<SendRequest>, &'static str> {
        let length = payload.len();
        let payload = match notification {
            Notification::Buffers => with_seal(payload),
            _ => payload,
        };
        let Some(behind) = self.bytes.checked_sub(payload.len()) else {
            return Err("its buffers are smaller than messages");
        };
        let operation = match notification {
            Notification::CompletionQueue => {
                SendOperation::WriteWithImmediate(self.at, self.number)
            }
            Notification::MessageQueue => SendOperation::Write(self.at),
            Notification::Buffers => SendOperation::Write(self.at.offset(behind)),
        };
        let mut requests = vec![SendRequest {
            id: ids[0],
            operation,
            payload,
            destination: None,
        }];
        if let (Notification::MessageQueue, Some(told)) = (notification, told) {
            let entry = [self.number.into(), length as u64, 0];
            requests.push(told.put(ids[1], entry));
        }
        Ok(requests)
    }
}
