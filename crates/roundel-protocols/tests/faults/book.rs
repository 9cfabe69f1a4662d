//! What is asked and answered, and how often each request was carried out: requests and responses follow from the
//! request's number, so that whoever has one can tell whether it is right.

use parking_lot::Mutex;
use roundel_protocols::Handler;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that can be read, where the protocol reads.
pub const READABLE_BYTES: usize = 4096;
const NUMBER_BYTES: usize = 8;

/// Requests by number.
#[derive(Default)]
pub struct Book {
    next: AtomicU64,
    carried_out: Mutex<Vec<u8>>,
    wrong: AtomicU64,
}

fn filled(number: u64, salt: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let mut state = (number ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..length {
        state = state.rotate_left(23).wrapping_mul(0xd1b5_4a32_d192_ed03) ^ number;
        bytes.push((state >> 56) as u8);
    }
    bytes
}

/// The request of a number: 8 to 36 bytes.
pub fn request(number: u64) -> Vec<u8> {
    filled(number, 1, (number * 7 % 29) as usize)
}

/// Its response: 8 to 365 bytes.
pub fn response(number: u64) -> Vec<u8> {
    filled(number, 2, (number * 13 % 358) as usize)
}

/// What can be read.
pub fn readable() -> Vec<u8> {
    filled(0, 3, READABLE_BYTES - NUMBER_BYTES)
}

fn number_of(request: &[u8]) -> Option<u64> {
    let number = request.first_chunk::<NUMBER_BYTES>()?;
    Some(u64::from_le_bytes(*number))
}

impl Book {
    /// With numbers from this on.
    pub fn starting_at(number: u64) -> Self {
        Self {
            next: AtomicU64::new(number),
            ..Self::default()
        }
    }

    /// A number that no other request has.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// No request was carried out twice, and none was other than it had been made.
    pub fn check(&self, told: &str) {
        assert_eq!(
            self.wrong.load(Ordering::Relaxed),
            0,
            "wrong requests: {told}"
        );
        let carried_out = self.carried_out.lock();
        let most = carried_out.iter().max().copied().unwrap_or(0);
        assert!(most <= 1, "a request was carried out {most} times: {told}");
    }

    /// Answers requests; `before` each it does something of its number.
    pub fn handler(
        self: &Arc<Self>,
        before: impl Fn(u64) + Send + 'static,
    ) -> impl Handler + Send + 'static {
        let book = self.clone();
        move |_: usize, bytes: &[u8], answer: &mut Vec<u8>| {
            let number = number_of(bytes).filter(|number| request(*number) == bytes);
            let Some(number) = number else {
                book.wrong.fetch_add(1, Ordering::Relaxed);
                return Err("a wrong request".to_owned());
            };
            {
                let mut carried_out = book.carried_out.lock();
                let at = number as usize;
                let length = carried_out.len().max(at + 1);
                carried_out.resize(length, 0);
                carried_out[at] += 1;
            }
            before(number);
            answer.extend(response(number));
            Ok(())
        }
    }
}
