//! String and binary views as sections: as they are when they use their buffers well, else
//! compacted, so that a few rows of a large buffer do not drag all of it over the network.

use arrow::array::{Array, ByteView, GenericByteViewArray};
use arrow::buffer::Buffer;
use arrow::datatypes::ByteViewType;

/// Values of at most this many bytes lie in the view itself.
pub(super) const INLINE_LENGTH_MAX: u32 = 12;

/// Most data buffers that are sent as they are: each costs a section, so many small ones are
/// better compacted.
const BUFFERS_MAX: usize = 256;

/// Longest data buffer that compaction makes; Arrow's offsets are signed 32-bit integers.
const COMPACTED_LENGTH_MAX: usize = i32::MAX as usize;

/// Appends the views and then the data buffers of `array`.
pub(super) fn encode_views<T: ByteViewType>(
    array: &GenericByteViewArray<T>,
    sections: &mut Vec<Buffer>,
) {
    if is_dense(array) {
        sections.push(array.views().inner().clone());
        sections.extend(array.data_buffers().iter().cloned());
    } else {
        compact(array, sections);
    }
}

/// True when the values make up at least half of the data buffers.
pub(super) fn is_dense<T: ByteViewType>(array: &GenericByteViewArray<T>) -> bool {
    let buffers = array.data_buffers();
    let total: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
    let few = buffers.len() <= BUFFERS_MAX;
    buffers.is_empty() || few && referenced_length(array.views()).saturating_mul(2) >= total
}

/// Sum of the lengths of the values that do not lie in their views, in bytes.
fn referenced_length(views: &[u128]) -> u64 {
    views.iter().map(|view| long_length(*view) as u64).sum()
}

/// Bytes of a view's value, if they do not lie in the view.
pub(super) fn long_length(view: u128) -> usize {
    let length = view as u32;
    if length > INLINE_LENGTH_MAX {
        length as usize
    } else {
        0
    }
}

/// Copies the referenced values together and points the views there.
fn compact<T: ByteViewType>(array: &GenericByteViewArray<T>, sections: &mut Vec<Buffer>) {
    let referenced = referenced_length(array.views());
    let buffers = array.data_buffers();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut views = Vec::with_capacity(array.len());
    let mut compacted = Vec::new();
    let mut data: Vec<u8> = Vec::with_capacity((referenced as usize).min(COMPACTED_LENGTH_MAX));
    for (row, &raw) in array.views().iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            views.push(0);
        } else if raw as u32 <= INLINE_LENGTH_MAX {
            views.push(raw);
        } else {
            let view = ByteView::from(raw);
            let (start, length) = (view.offset as usize, view.length as usize);
            if !data.is_empty() && data.len() + length > COMPACTED_LENGTH_MAX {
                compacted.push(Buffer::from_vec(std::mem::take(&mut data)));
            }
            let buffer_index = compacted.len() as u32;
            views.push(
                ByteView {
                    buffer_index,
                    offset: data.len() as u32,
                    ..view
                }
                .as_u128(),
            );
            data.extend_from_slice(&buffers[view.buffer_index as usize][start..start + length]);
        }
    }
    sections.push(Buffer::from_vec(views));
    sections.extend(compacted);
    if !data.is_empty() {
        sections.push(Buffer::from_vec(data));
    }
}
