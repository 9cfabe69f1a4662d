//! Copies into memory that peers watch: what they may rely on while a WRITE arrives.
#![allow(unsafe_code)] // Copies between raw ranges that the callers vouch for.

use std::sync::atomic::{AtomicU8, AtomicU64};

/// Up to this many bytes are copied word by word.
const WORDS_BYTES_MAX: usize = 256;

/// Copies a WRITE's bytes so that its end becomes visible last: pollers look at the last byte.
/// The aligned words of a short WRITE arrive whole.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes, and they do not overlap.
pub(crate) unsafe fn copy_last_byte_last(source: *const u8, target: *mut u8, length: usize) {
    if length == 0 {
        return;
    }
    let end = target as usize + length;
    if length >= 8 && end.is_multiple_of(8) {
        let last = length - 8;
        // SAFETY: the caller's ranges; the last word of the target is aligned (checked) and
        // reached through an atomic; the source word is read unaligned.
        unsafe {
            copy_words_whole(source, target, last);
            let word = source.add(last).cast::<u64>().read_unaligned();
            AtomicU64::from_ptr(target.add(last).cast())
                .store(word, std::sync::atomic::Ordering::Release);
        }
    } else {
        let last = length - 1;
        // SAFETY: the caller's ranges.
        unsafe {
            copy_words_whole(source, target, last);
            AtomicU8::from_ptr(target.add(last))
                .store(*source.add(last), std::sync::atomic::Ordering::Release);
        }
    }
}

/// Copies bytes; when there are few and both sides are aligned, no word is torn.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes.
pub(crate) unsafe fn copy_words_whole(source: *const u8, target: *mut u8, length: usize) {
    use std::sync::atomic::Ordering::Relaxed;
    if length > WORDS_BYTES_MAX || !(source as usize | target as usize | length).is_multiple_of(8) {
        // SAFETY: the caller's ranges; `copy` allows them to overlap.
        unsafe { std::ptr::copy(source, target, length) };
        return;
    }
    for at in (0..length).step_by(8) {
        // SAFETY: inside the caller's ranges, aligned (checked above). The source may be memory
        // that is written meanwhile, or this thread's own: an atomic load suits both.
        unsafe {
            let word = AtomicU64::from_ptr(source.add(at).cast_mut().cast()).load(Relaxed);
            AtomicU64::from_ptr(target.add(at).cast()).store(word, Relaxed);
        }
    }
}
