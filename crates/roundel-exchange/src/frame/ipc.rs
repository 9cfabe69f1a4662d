//! Columns that no layout of our own exists for, as Arrow IPC messages.
//!
//! A section is a stream of encapsulated messages without the schema message, which both sides
//! know: one dictionary batch per dictionary, then one record batch with the column.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{read_dictionary, read_record_batch};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, StreamEncoder};
use arrow::ipc::{self, MessageHeader, root_as_message};

use super::compact::compacted;

/// What every encapsulated message begins with, before the length of its metadata.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Bytes before the metadata of an encapsulated message.
const PREFIX_LENGTH: usize = 8;
/// Most values of an array or of a child. Products with the widths of values cannot overflow.
const VALUES_MAX: i64 = u32::MAX as i64;

/// The messages of one column, in pieces.
pub(super) fn encode(array: &ArrayRef) -> Result<Vec<Buffer>, ArrowError> {
    let array = compacted(array)?;
    let schema = column_schema(array.data_type());
    let batch = RecordBatch::try_new(schema.clone(), vec![array])?;
    let mut pieces = StreamEncoder::try_new(&schema)?.encode(&batch)?;
    drop_schema_message(&mut pieces)?;
    Ok(pieces)
}

fn column_schema(data_type: &DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("", data_type.clone(), true)]))
}

/// Removes the first message, which has metadata and no body.
fn drop_schema_message(pieces: &mut Vec<Buffer>) -> Result<(), ArrowError> {
    let first = pieces.first().and_then(|piece| prefix(piece));
    let length = first.ok_or_else(|| ArrowError::IpcError("stream without schema".to_owned()))?;
    let end = PREFIX_LENGTH + length;
    let mut passed = 0;
    let count = pieces.iter().take_while(|piece| {
        let whole = passed < end;
        passed += if whole { piece.len() } else { 0 };
        whole
    });
    let count = count.count();
    if passed != end {
        return Err(ArrowError::IpcError(
            "schema message is not of whole buffers".to_owned(),
        ));
    }
    pieces.drain(..count);
    Ok(())
}

/// Length of the metadata of the encapsulated message that `bytes` begin with.
fn prefix(bytes: &[u8]) -> Option<usize> {
    let (continuation, rest) = bytes.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    (*continuation == CONTINUATION).then_some(u32::from_le_bytes(*length) as usize)
}

/// Decodes columns of one type.
#[derive(Debug)]
pub(super) struct IpcDecoder {
    /// The schema as the messages refer to it: with the identifiers of its dictionaries, which
    /// both sides number in the same order.
    schema: SchemaRef,
}

impl IpcDecoder {
    /// A decoder of columns of `data_type`.
    pub(super) fn try_new(data_type: &DataType) -> Result<Self, ArrowError> {
        let schema = column_schema(data_type);
        // Fails where the sender's does.
        StreamEncoder::try_new(&schema)?;
        let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            &schema,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
        );
        let schema = root_as_message(&message.ipc_message)
            .ok()
            .and_then(|message| message.header_as_schema().map(fb_to_schema))
            .ok_or_else(|| ArrowError::IpcError("schema does not survive encoding".to_owned()))?;
        Ok(Self {
            schema: Arc::new(schema),
        })
    }

    /// The column in a section of untrusted bytes; the caller checks its length.
    pub(super) fn decode(&self, section: &Buffer) -> Result<ArrayRef, String> {
        let mut rest = section.clone();
        let mut dictionaries = HashMap::new();
        loop {
            let length = prefix(&rest).ok_or("message without prefix")?;
            let metadata = rest
                .get(PREFIX_LENGTH..)
                .and_then(|rest| rest.get(..length));
            let metadata = metadata
                .ok_or("metadata reaches beyond the section")?
                .to_vec();
            rest.advance(PREFIX_LENGTH + length);
            let message = root_as_message(&metadata).map_err(|error| error.to_string())?;
            let length = usize::try_from(message.bodyLength()).map_err(|_| "negative body")?;
            if length > rest.len() {
                return Err("body reaches beyond the section".to_owned());
            }
            let body = rest.slice_with_length(0, length);
            rest.advance(length);
            match message.header_type() {
                MessageHeader::DictionaryBatch => {
                    let batch = message
                        .header_as_dictionary_batch()
                        .ok_or("no dictionary")?;
                    if batch.isDelta() {
                        return Err("delta dictionary".to_owned());
                    }
                    check(batch.data().ok_or("dictionary without data")?, body.len())?;
                    let version = message.version();
                    confined(|| {
                        read_dictionary(&body, batch, &self.schema, &mut dictionaries, &version)
                    })?;
                }
                MessageHeader::RecordBatch => {
                    let batch = message.header_as_record_batch().ok_or("no record batch")?;
                    check(batch, body.len())?;
                    let (schema, version) = (self.schema.clone(), message.version());
                    let batch = confined(|| {
                        read_record_batch(&body, batch, schema, &dictionaries, None, &version)
                    })?;
                    if !rest.is_empty() {
                        return Err("bytes after the record batch".to_owned());
                    }
                    return Ok(batch.column(0).clone());
                }
                other => return Err(format!("message of the kind {other:?}")),
            }
        }
    }
}

/// Refuses what the reader of arrow-ipc takes on trust: buffers beyond the body, negative or huge
/// lengths, and compressed buffers, which announce how much memory to reserve.
fn check(batch: ipc::RecordBatch<'_>, body_length: usize) -> Result<(), String> {
    if batch.compression().is_some() {
        return Err("compressed buffers".to_owned());
    }
    let inside = |offset: i64, length: i64| {
        let end = offset.checked_add(length);
        offset >= 0 && length >= 0 && end.is_some_and(|end| end as u64 <= body_length as u64)
    };
    let count = |count: i64| (0..=VALUES_MAX).contains(&count);
    let mut buffers = batch.buffers().into_iter().flatten();
    let mut nodes = batch.nodes().into_iter().flatten();
    let mut views = batch.variadicBufferCounts().into_iter().flatten();
    if !buffers.all(|buffer| inside(buffer.offset(), buffer.length())) {
        return Err("buffer reaches beyond the body".to_owned());
    }
    if !nodes.all(|node| count(node.length()) && (0..=node.length()).contains(&node.null_count())) {
        return Err("impossible number of values".to_owned());
    }
    if !count(batch.length()) || !views.all(count) {
        return Err("impossible number of rows or buffers".to_owned());
    }
    Ok(())
}

/// Runs a call into the reader of arrow-ipc, which asserts in places that lengths in metadata agree
/// with each other. A panic there is a fault of the bytes, and the reader keeps no state that it
/// could have left half done.
fn confined<T>(call: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("inconsistent metadata".to_owned()),
    }
}
