//! A frame of untrusted bytes as a batch whose arrays are slices of it.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, NullArray,
    PrimitiveArray, RecordBatch, RecordBatchOptions, downcast_primitive, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, BinaryViewType, ByteArrayType, ByteViewType, DataType,
    LargeBinaryType, LargeUtf8Type, SchemaRef, StringViewType, Utf8Type,
};

use super::FrameError;
use super::ipc::IpcDecoder;
use super::layout::{
    ALL_NULL_ROWS_MAX, DESCRIPTOR_LENGTH, Descriptor, Encoding, PREAMBLE_FIXED_LENGTH, Preamble,
    SECTION_ALIGNMENT, SECTION_ENTRY_LENGTH, fingerprint, preamble_length, u32_at,
};
use super::validate::{byte_array, view_array};

/// Decodes frames of one schema.
#[derive(Debug)]
pub struct FrameDecoder {
    schema: SchemaRef,
    fingerprint: u64,
    /// For each column, how to decode it where it travels as Arrow IPC.
    ipc: Vec<Option<IpcDecoder>>,
}

impl FrameDecoder {
    /// A decoder of the frames of batches of `schema`.
    ///
    /// # Errors
    /// [`FrameError::Unsupported`] when Arrow IPC cannot carry one of its types.
    pub fn try_new(schema: SchemaRef) -> Result<Self, FrameError> {
        let types = || schema.fields().iter().map(|field| field.data_type());
        let ipc = types().enumerate().map(|(column, data_type)| {
            let by_ipc = Encoding::of(data_type) == Encoding::Ipc;
            let decoder = by_ipc.then(|| IpcDecoder::try_new(data_type)).transpose();
            decoder.map_err(|source| FrameError::Unsupported { column, source })
        });
        let ipc = ipc.collect::<Result<_, _>>()?;
        Ok(Self {
            fingerprint: fingerprint(types()),
            ipc,
            schema,
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batch in `frame`, which begins at a multiple of [`SECTION_ALIGNMENT`] in memory, as
    /// [`FrameAssembler`](super::FrameAssembler) makes it.
    ///
    /// The arrays share `frame`: its memory is freed when the last of them is dropped, so what a
    /// batch holds is the length of its frame, once. Columns that are null throughout are
    /// allocated beside it.
    ///
    /// # Errors
    /// Any bytes that are not a frame of this schema.
    pub fn decode(&self, frame: Buffer) -> Result<RecordBatch, FrameError> {
        if frame.as_ptr().align_offset(SECTION_ALIGNMENT) != 0 {
            return Err(FrameError::Misaligned);
        }
        let preamble = Preamble::parse(&frame)?;
        if preamble.fingerprint != self.fingerprint {
            let (expected, found) = (self.fingerprint, preamble.fingerprint);
            return Err(FrameError::Schema { expected, found });
        }
        let fields = self.schema.fields();
        if preamble.columns as usize != fields.len() {
            let (expected, found) = (fields.len(), preamble.columns);
            return Err(FrameError::Columns { expected, found });
        }
        let (descriptors, mut sections) = parts(&frame, &preamble)?;
        let rows = preamble.rows as usize;
        let mut columns = Vec::with_capacity(fields.len());
        for (index, (field, descriptor)) in fields.iter().zip(descriptors).enumerate() {
            let data_type = field.data_type();
            let column = Column {
                index,
                data_type,
                rows,
                ipc: self.ipc[index].as_ref(),
            };
            columns.push(column.decode(descriptor, sections.take(descriptor.sections as usize))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|source| FrameError::Batch { source })
    }
}

/// Checks the tables of the preamble against each other and against the length of the frame.
fn parts<'a>(
    frame: &'a Buffer,
    preamble: &Preamble,
) -> Result<(Vec<Descriptor>, Sections<'a>), FrameError> {
    let (columns, section_count) = (preamble.columns as usize, preamble.sections as usize);
    let start = preamble_length(columns, section_count);
    let Some(tables) = frame.get(PREAMBLE_FIXED_LENGTH..start) else {
        return Err(FrameError::Truncated {
            needed: start as u64,
            length: frame.len(),
        });
    };
    let (descriptors, lengths) = tables.split_at(DESCRIPTOR_LENGTH * columns);
    let lengths = &lengths[..SECTION_ENTRY_LENGTH * section_count];
    let descriptors = descriptors
        .chunks_exact(DESCRIPTOR_LENGTH)
        .map(Descriptor::parse);
    let descriptors = descriptors.collect::<Result<Vec<_>, _>>()?;
    let found: u64 = descriptors
        .iter()
        .map(|column| u64::from(column.sections))
        .sum();
    if found != u64::from(preamble.sections) {
        return Err(FrameError::SectionCount {
            expected: preamble.sections,
            found,
        });
    }
    let sections = Sections {
        frame,
        lengths,
        position: start,
    };
    let end = sections.end();
    if end > frame.len() as u64 {
        return Err(FrameError::Truncated {
            needed: end,
            length: frame.len(),
        });
    }
    if end < frame.len() as u64 {
        return Err(FrameError::TrailingBytes {
            end: end as usize,
            length: frame.len(),
        });
    }
    Ok((descriptors, sections))
}

/// A cursor over the sections of a frame, which are known to lie within it.
struct Sections<'a> {
    frame: &'a Buffer,
    /// The rest of the table of lengths.
    lengths: &'a [u8],
    /// Where the next section begins, in bytes.
    position: usize,
}

impl Sections<'_> {
    /// Where the last section ends, with its padding.
    fn end(&self) -> u64 {
        let lengths = self.lengths.chunks_exact(SECTION_ENTRY_LENGTH);
        let padded = |length: u32| u64::from(length).next_multiple_of(SECTION_ALIGNMENT as u64);
        self.position as u64 + lengths.map(|length| padded(u32_at(length, 0))).sum::<u64>()
    }

    /// The next `count` sections, or as many as there are.
    fn take(&mut self, count: usize) -> Vec<Buffer> {
        let (taken, rest) = self
            .lengths
            .split_at((SECTION_ENTRY_LENGTH * count).min(self.lengths.len()));
        self.lengths = rest;
        let lengths = taken.chunks_exact(SECTION_ENTRY_LENGTH);
        let sections = lengths.map(|length| {
            let length = u32_at(length, 0) as usize;
            let section = self.frame.slice_with_length(self.position, length);
            self.position += length.next_multiple_of(SECTION_ALIGNMENT);
            section
        });
        sections.collect()
    }
}

/// What the receiver knows of a column.
struct Column<'a> {
    index: usize,
    data_type: &'a DataType,
    rows: usize,
    ipc: Option<&'a IpcDecoder>,
}

impl Column<'_> {
    fn decode(
        &self,
        descriptor: Descriptor,
        mut sections: Vec<Buffer>,
    ) -> Result<ArrayRef, FrameError> {
        let encoding = Encoding::of(self.data_type);
        let all_null = descriptor.encoding == Encoding::AllNull as u8
            && (encoding == Encoding::AllNull || encoding.has_validity());
        let may_have_validity = encoding.has_validity() && !all_null;
        if !all_null && descriptor.encoding != encoding as u8
            || descriptor.validity && !may_have_validity
        {
            return Err(FrameError::Encoding {
                column: self.index,
                found: descriptor.encoding,
            });
        }
        if all_null {
            let [] = self.exactly(sections)?;
            return self.all_null();
        }
        let nulls = if descriptor.validity && !sections.is_empty() {
            Some(NullBuffer::new(self.bits(sections.remove(0))?))
        } else {
            None
        };
        match self.data_type {
            DataType::Boolean => {
                let [values] = self.exactly(sections)?;
                Ok(Arc::new(BooleanArray::new(self.bits(values)?, nulls)))
            }
            DataType::FixedSizeBinary(width) => self.fixed_size_binary(*width, sections, nulls),
            DataType::Utf8 => self.bytes::<Utf8Type>(sections, nulls),
            DataType::LargeUtf8 => self.bytes::<LargeUtf8Type>(sections, nulls),
            DataType::Binary => self.bytes::<BinaryType>(sections, nulls),
            DataType::LargeBinary => self.bytes::<LargeBinaryType>(sections, nulls),
            DataType::Utf8View => self.views::<StringViewType>(sections, nulls),
            DataType::BinaryView => self.views::<BinaryViewType>(sections, nulls),
            _ if encoding == Encoding::Ipc => self.ipc(sections),
            _ => self.primitive(sections, nulls),
        }
    }

    /// The sections, if they are as many as the encoding has after the validity bitmap.
    fn exactly<const N: usize>(&self, sections: Vec<Buffer>) -> Result<[Buffer; N], FrameError> {
        <[Buffer; N]>::try_from(sections).map_err(|sections| FrameError::Sections {
            column: self.index,
            found: sections.len() as u32,
        })
    }

    /// Checks that a section holds `count` values of `width` bytes.
    fn holds(&self, section: &Buffer, count: usize, width: usize) -> Result<(), FrameError> {
        let expected = count as u64 * width as u64;
        if section.len() as u64 != expected {
            let (column, found) = (self.index, section.len());
            return Err(FrameError::SectionLength {
                column,
                expected,
                found,
            });
        }
        Ok(())
    }

    fn bits(&self, section: Buffer) -> Result<BooleanBuffer, FrameError> {
        self.holds(&section, self.rows.div_ceil(8), 1)?;
        Ok(BooleanBuffer::new(section, 0, self.rows))
    }

    /// `count` values; sections begin at multiples of 16 bytes, so they are aligned for any type.
    fn scalars<T: ArrowNativeType>(
        &self,
        section: Buffer,
        count: usize,
    ) -> Result<ScalarBuffer<T>, FrameError> {
        self.holds(&section, count, size_of::<T>())?;
        Ok(ScalarBuffer::new(section, 0, count))
    }

    fn all_null(&self) -> Result<ArrayRef, FrameError> {
        if *self.data_type == DataType::Null {
            return Ok(Arc::new(NullArray::new(self.rows)));
        }
        if self.rows > ALL_NULL_ROWS_MAX as usize {
            return Err(FrameError::AllNull {
                column: self.index,
                rows: self.rows as u32,
            });
        }
        Ok(new_null_array(self.data_type, self.rows))
    }

    fn primitive(
        &self,
        sections: Vec<Buffer>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, FrameError> {
        let [values] = self.exactly(sections)?;
        macro_rules! typed {
            ($type:ty) => {
                self.typed::<$type>(values, nulls)
            };
        }
        downcast_primitive! {
            self.data_type => (typed),
            other => unreachable!("{other} is not encoded as a primitive type")
        }
    }

    fn typed<T: ArrowPrimitiveType>(
        &self,
        values: Buffer,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, FrameError> {
        let values = self.scalars(values, self.rows)?;
        let array = PrimitiveArray::<T>::try_new(values, nulls);
        let array = array.map_err(|source| self.refused(source))?;
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }

    fn fixed_size_binary(
        &self,
        width: i32,
        sections: Vec<Buffer>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, FrameError> {
        let [values] = self.exactly(sections)?;
        self.holds(
            &values,
            self.rows,
            usize::try_from(width).unwrap_or_default(),
        )?;
        let array = FixedSizeBinaryArray::try_new_with_len(width, values, nulls, self.rows);
        Ok(Arc::new(array.map_err(|source| self.refused(source))?))
    }

    fn bytes<T: ByteArrayType>(
        &self,
        sections: Vec<Buffer>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, FrameError> {
        let [offsets, values] = self.exactly(sections)?;
        let offsets = self.scalars(offsets, self.rows + 1)?;
        Ok(Arc::new(byte_array::<T>(
            self.index, offsets, values, nulls,
        )?))
    }

    fn views<T: ByteViewType>(
        &self,
        mut sections: Vec<Buffer>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, FrameError> {
        if sections.is_empty() {
            return Err(FrameError::Sections {
                column: self.index,
                found: 0,
            });
        }
        let views = self.scalars(sections.remove(0), self.rows)?;
        Ok(Arc::new(view_array::<T>(
            self.index, views, sections, nulls,
        )?))
    }

    fn ipc(&self, sections: Vec<Buffer>) -> Result<ArrayRef, FrameError> {
        let [section] = self.exactly(sections)?;
        let decoder = self
            .ipc
            .expect("a column that travels as Arrow IPC has a decoder");
        let array = decoder.decode(&section).map_err(|reason| FrameError::Ipc {
            column: self.index,
            reason,
        })?;
        if array.len() != self.rows {
            let reason = format!("{} rows instead of {}", array.len(), self.rows);
            return Err(FrameError::Ipc {
                column: self.index,
                reason,
            });
        }
        Ok(array)
    }

    fn refused(&self, source: arrow::error::ArrowError) -> FrameError {
        FrameError::Array {
            column: self.index,
            source,
        }
    }
}
