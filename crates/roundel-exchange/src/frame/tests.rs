mod arrays;
mod corruption;
mod round_trip;
mod rows;
mod validate;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;

use super::{FrameAssembler, FrameSource};

/// The frame of a batch, cut in fragments of at most `fragment` bytes and put together again.
fn frame(batch: &RecordBatch, fragment: usize) -> Buffer {
    let source = FrameSource::try_new(batch).unwrap();
    assert_eq!(source.rows() as usize, batch.num_rows());
    let mut assembler = FrameAssembler::new(source.len() as u32);
    let mut reader = source.into_reader();
    let mut message = vec![0; fragment];
    while reader.remaining() > 0 {
        let offset = reader.position();
        let length = reader.copy_to(&mut message);
        assert!(length == fragment || reader.remaining() == 0);
        assembler.insert(offset, &message[..length]).unwrap();
    }
    assembler.finish().unwrap()
}
