//! Checks of offsets and views from the network, and the only place that makes arrays of them.
//!
//! Arrow's own checks walk value by value and stop at the first bad one. Those here look at whole
//! columns with loops that the compiler can vectorise, and fall back to a look at single values
//! only for text that is not ASCII. Tests hold them against Arrow's.
#![allow(unsafe_code)] // The unchecked constructors, after the checks that they ask for.

use arrow::array::{ByteView, GenericByteArray, GenericByteViewArray, OffsetSizeTrait};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ByteArrayType, ByteViewType, DataType};

use super::FrameError;
use super::views::INLINE_LENGTH_MAX;

/// An array of `column` from its parts.
///
/// `nulls`, where there are any, are one fewer than `offsets`.
pub(super) fn byte_array<T: ByteArrayType>(
    column: usize,
    offsets: ScalarBuffer<T::Offset>,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<GenericByteArray<T>, FrameError> {
    assert!(
        nulls
            .as_ref()
            .is_none_or(|nulls| nulls.len() + 1 == offsets.len())
    );
    let utf8 = matches!(T::DATA_TYPE, DataType::Utf8 | DataType::LargeUtf8);
    if !offsets_rise_to(&offsets, values.len()) {
        return Err(FrameError::Offsets(column));
    }
    if utf8 && !keeps_characters_whole(&offsets, &values) {
        return Err(FrameError::Utf8(column));
    }
    // SAFETY: the offsets are not empty, begin at 0 and never fall.
    let offsets = unsafe { OffsetBuffer::new_unchecked(offsets) };
    // SAFETY: the last and so the greatest offset is the length of the values; when the array is
    // of strings the values are UTF-8 and every offset is at a boundary of its characters; there
    // are as many nulls as values.
    Ok(unsafe { GenericByteArray::new_unchecked(offsets, values, nulls) })
}

/// An array of `column` from its parts.
///
/// `nulls`, where there are any, are as many as `views`.
pub(super) fn view_array<T: ByteViewType>(
    column: usize,
    views: ScalarBuffer<u128>,
    buffers: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> Result<GenericByteViewArray<T>, FrameError> {
    assert!(
        nulls
            .as_ref()
            .is_none_or(|nulls| nulls.len() == views.len())
    );
    let texts: Vec<Text<'_>> = buffers
        .iter()
        .map(|buffer| Text::of(buffer, T::IS_UTF8))
        .collect();
    for (row, &view) in views.iter().enumerate() {
        if view as u32 <= INLINE_LENGTH_MAX {
            check_inline(column, row, view, T::IS_UTF8)?;
        } else {
            check_long(column, row, view, &texts)?;
        }
    }
    // SAFETY: every view, also of a null, is padded with 0 when it holds its value, and otherwise
    // lies in its buffer and has the right prefix; the values of strings are UTF-8; there are as
    // many nulls as views.
    Ok(unsafe { GenericByteViewArray::new_unchecked(views, buffers, nulls) })
}

/// True when the offsets begin at 0, never fall, and end at `length`.
fn offsets_rise_to<O: OffsetSizeTrait>(offsets: &[O], length: usize) -> bool {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return false;
    };
    // No early exit, so that it vectorises: bad offsets are rare.
    let rising = offsets
        .iter()
        .zip(&offsets[1..])
        .fold(true, |rising, (a, b)| rising & (a <= b));
    first == O::zero() && rising && last.as_usize() == length
}

/// True when `values` are UTF-8 and no offset is within a character.
fn keeps_characters_whole<O: OffsetSizeTrait>(offsets: &[O], values: &[u8]) -> bool {
    if values.is_ascii() {
        return true;
    }
    std::str::from_utf8(values).is_ok_and(|text| {
        offsets
            .iter()
            .all(|offset| text.is_char_boundary(offset.as_usize()))
    })
}

/// What is known of the bytes of a data buffer of views.
enum Text<'a> {
    /// Any range may be a value: binary data, or ASCII.
    Any(&'a [u8]),
    /// UTF-8, in which a value must not split a character.
    Utf8(&'a str),
    /// Not UTF-8 as a whole; a buffer that was sent as it was may hold other things than values.
    Mixed(&'a [u8]),
}

impl<'a> Text<'a> {
    fn of(bytes: &'a [u8], utf8: bool) -> Self {
        if !utf8 || bytes.is_ascii() {
            return Self::Any(bytes);
        }
        std::str::from_utf8(bytes).map_or(Self::Mixed(bytes), Self::Utf8)
    }
}

/// For each length of a value within its view, the bits that are 0 if it is padded with 0 and ASCII.
const INLINE_FORBIDDEN: [u128; INLINE_LENGTH_MAX as usize + 1] = {
    let mut forbidden = [0; INLINE_LENGTH_MAX as usize + 1];
    let mut length = 0;
    while length < forbidden.len() {
        let mut byte = 0;
        while byte < INLINE_LENGTH_MAX as usize {
            let bits: u128 = if byte < length { 0x80 } else { 0xff };
            forbidden[length] |= bits << (32 + 8 * byte);
            byte += 1;
        }
        length += 1;
    }
    forbidden
};

#[inline]
fn check_inline(column: usize, row: usize, view: u128, utf8: bool) -> Result<(), FrameError> {
    if view & INLINE_FORBIDDEN[view as u32 as usize] == 0 {
        return Ok(());
    }
    check_inline_slowly(column, row, view, utf8)
}

#[cold]
fn check_inline_slowly(
    column: usize,
    row: usize,
    view: u128,
    utf8: bool,
) -> Result<(), FrameError> {
    let bytes = view.to_le_bytes();
    let (value, padding) = bytes[4..].split_at(view as u32 as usize);
    if padding.iter().any(|&byte| byte != 0) {
        return Err(FrameError::View { column, row });
    }
    if utf8 && std::str::from_utf8(value).is_err() {
        return Err(FrameError::Utf8(column));
    }
    Ok(())
}

#[inline]
fn check_long(column: usize, row: usize, view: u128, texts: &[Text<'_>]) -> Result<(), FrameError> {
    let ByteView {
        length,
        prefix,
        buffer_index,
        offset,
    } = ByteView::from(view);
    let (start, end) = (offset as usize, offset as usize + length as usize);
    let (value, is_text) = match texts.get(buffer_index as usize) {
        Some(Text::Any(bytes)) => (bytes.get(start..end), true),
        Some(Text::Utf8(text)) => {
            let whole = text.is_char_boundary(start) && text.is_char_boundary(end);
            (text.as_bytes().get(start..end), whole)
        }
        Some(Text::Mixed(bytes)) => {
            let value = bytes.get(start..end);
            (
                value,
                value.is_some_and(|value| std::str::from_utf8(value).is_ok()),
            )
        }
        None => (None, false),
    };
    match value {
        Some(value) if value.starts_with(&prefix.to_le_bytes()) => {
            if is_text {
                Ok(())
            } else {
                Err(FrameError::Utf8(column))
            }
        }
        _ => Err(FrameError::View { column, row }),
    }
}
