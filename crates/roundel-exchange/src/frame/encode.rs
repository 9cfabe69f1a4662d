//! One column as sections of bytes: slices of its own buffers wherever its layout allows.

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, GenericByteArray, OffsetSizeTrait,
    downcast_primitive,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, BinaryViewType, ByteArrayType, DataType, LargeBinaryType,
    LargeUtf8Type, StringViewType, Utf8Type,
};

use super::layout::{ALL_NULL_ROWS_MAX, Encoding};
use super::views::encode_views;
use super::{FrameError, ipc};

/// A column, laid out.
pub(super) struct Column {
    pub(super) encoding: Encoding,
    /// True when the first section is the validity bitmap.
    pub(super) validity: bool,
    /// The bytes of the sections: a piece for each, but all pieces together for Arrow IPC.
    pub(super) pieces: Vec<Buffer>,
}

impl Column {
    /// The sections, each as the pieces that it is made of.
    pub(super) fn sections(&self) -> std::slice::Chunks<'_, Buffer> {
        let joined = self.encoding == Encoding::Ipc;
        self.pieces
            .chunks(if joined { self.pieces.len().max(1) } else { 1 })
    }
}

/// Lays out the column `index` of a batch.
pub(super) fn encode_column(index: usize, array: &ArrayRef) -> Result<Column, FrameError> {
    let encoding = Encoding::of(array.data_type());
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let all_null = nulls.is_some_and(|nulls| nulls.null_count() == nulls.len());
    if encoding == Encoding::AllNull
        || encoding.has_validity() && all_null && array.len() <= ALL_NULL_ROWS_MAX as usize
    {
        return Ok(Column {
            encoding: Encoding::AllNull,
            validity: false,
            pieces: Vec::new(),
        });
    }
    if encoding == Encoding::Ipc {
        let pieces = ipc::encode(array).map_err(|source| FrameError::Unsupported {
            column: index,
            source,
        })?;
        return Ok(Column {
            encoding,
            validity: false,
            pieces,
        });
    }
    let mut sections = Vec::with_capacity(3);
    sections.extend(nulls.map(NullBuffer::inner).map(bits));
    let validity = !sections.is_empty();
    match array.data_type() {
        DataType::Boolean => sections.push(bits(array.as_boolean().values())),
        DataType::FixedSizeBinary(_) => {
            sections.push(array.as_fixed_size_binary().values().clone());
        }
        DataType::Utf8 => sections.extend(bytes::<Utf8Type>(array.as_bytes())),
        DataType::LargeUtf8 => sections.extend(bytes::<LargeUtf8Type>(array.as_bytes())),
        DataType::Binary => sections.extend(bytes::<BinaryType>(array.as_bytes())),
        DataType::LargeBinary => sections.extend(bytes::<LargeBinaryType>(array.as_bytes())),
        DataType::Utf8View => {
            encode_views(array.as_byte_view::<StringViewType>(), &mut sections);
        }
        DataType::BinaryView => {
            encode_views(array.as_byte_view::<BinaryViewType>(), &mut sections);
        }
        _ => sections.push(primitive(array)),
    }
    Ok(Column {
        encoding,
        validity,
        pieces: sections,
    })
}

/// The values of a primitive array, which are contiguous even when it is a slice.
fn primitive(array: &ArrayRef) -> Buffer {
    macro_rules! values {
        ($type:ty) => {
            primitive_values::<$type>(array)
        };
    }
    downcast_primitive! {
        array.data_type() => (values),
        other => unreachable!("{other} is not encoded as a primitive type")
    }
}

fn primitive_values<T: ArrowPrimitiveType>(array: &ArrayRef) -> Buffer {
    array.as_primitive::<T>().values().inner().clone()
}

/// A bitmap from its first bit on: referenced when it begins at a whole byte, else shifted.
fn bits(bitmap: &BooleanBuffer) -> Buffer {
    let length = bitmap.len().div_ceil(8);
    if bitmap.offset().is_multiple_of(8) {
        bitmap
            .inner()
            .slice_with_length(bitmap.offset() / 8, length)
    } else {
        let shifted = bitmap.sliced();
        shifted.slice_with_length(0, length)
    }
}

/// Offsets from 0 and the values between the first and the last of them.
fn bytes<T: ByteArrayType>(array: &GenericByteArray<T>) -> [Buffer; 2] {
    let offsets = array.offsets();
    let (first, last) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
    [
        rebased(offsets),
        array.values().slice_with_length(first, last - first),
    ]
}

fn rebased<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Buffer {
    let first = offsets[0];
    if first == O::zero() {
        return offsets.inner().inner().clone();
    }
    Buffer::from_vec(
        offsets
            .iter()
            .map(|&offset| offset - first)
            .collect::<Vec<O>>(),
    )
}
