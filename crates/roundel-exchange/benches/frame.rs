//! CPU cost of moving batches as frames, beside Arrow IPC streams, which Arrow Flight sends.
//!
//! `cargo bench -p roundel-exchange --bench frame` prints one JSON object. Both ways encode a batch
//! of rows like those of TPC-H's lineitem, copy it into messages of 64 KiB, copy these together
//! again and decode. Their runs alternate; the figures are medians, in GB of frame per second.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::*;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use roundel_exchange::frame::{FrameAssembler, FrameDecoder, FrameSource};

const ROWS: usize = 8_192;
const MESSAGE_LENGTH: usize = 64 << 10;
const RUNS: usize = 301;

fn main() {
    let dense = lineitem();
    // What a repartitioning over four leaves of it: each view buffer is used to a quarter.
    let every_fourth = UInt32Array::from_iter_values((0..ROWS as u32).step_by(4));
    let sparse = take_record_batch(&dense, &every_fourth).expect("rows exist");
    let few = dense.slice(1_000, 128);
    let numbers = dense
        .project(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        .expect("columns exist");
    let texts = dense
        .project(&[11, 12, 13, 14, 15, 16])
        .expect("columns exist");
    let batches = [
        ("lineitem", dense),
        ("a quarter of it", sparse),
        ("128 rows of it", few),
        ("numbers", numbers),
        ("texts", texts),
    ];
    println!("{{\"rows\": {ROWS}, \"runs\": {RUNS}, \"batches\": [");
    for (index, (name, batch)) in batches.iter().enumerate() {
        println!(
            "{}  {}",
            if index > 0 { "," } else { "" },
            measure(name, batch)
        );
    }
    println!("]}}");
}

/// Times of the three steps of one journey.
type Steps = [Duration; 3];

fn measure(name: &str, batch: &RecordBatch) -> String {
    let decoder = FrameDecoder::try_new(batch.schema()).expect("types are supported");
    let mut message = vec![0; MESSAGE_LENGTH];
    let (mut frames, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        frames.push(by_frame(batch, &decoder, &mut message));
        streams.push(by_stream(batch, &mut message));
    }
    let bytes = FrameSource::try_new(batch).expect("the batch fits").len();
    let frame = rates(&frames, bytes);
    let stream = rates(&streams, bytes);
    format!(
        "{{\"batch\": \"{name}\", \"frame_bytes\": {bytes}, \"frame\": {frame}, \"ipc\": {stream}}}"
    )
}

fn by_frame(batch: &RecordBatch, decoder: &FrameDecoder, message: &mut [u8]) -> Steps {
    let start = Instant::now();
    let source = FrameSource::try_new(black_box(batch)).expect("the batch fits");
    let encoded = Instant::now();
    let mut assembler = FrameAssembler::new(source.len() as u32);
    let mut reader = source.into_reader();
    while reader.remaining() > 0 {
        let offset = reader.position();
        let length = reader.copy_to(message);
        assembler
            .insert(offset, black_box(&message[..length]))
            .expect("fragments fit");
    }
    let frame = assembler.finish().expect("all fragments arrived");
    let moved = Instant::now();
    black_box(decoder.decode(frame).expect("the frame is sound"));
    [encoded - start, moved - encoded, moved.elapsed()]
}

fn by_stream(batch: &RecordBatch, message: &mut [u8]) -> Steps {
    // The schema travels once a stream, not once a batch.
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a schema");
    let mut schema = Buffer::from_vec(std::mem::take(writer.get_mut()));
    let mut decoder = StreamDecoder::new();
    decoder.decode(&mut schema).expect("a schema");

    let start = Instant::now();
    writer.write(black_box(batch)).expect("types are supported");
    let encoded = Instant::now();
    let bytes = writer.get_ref();
    let mut assembled = MutableBuffer::with_capacity(bytes.len());
    for fragment in bytes.chunks(MESSAGE_LENGTH) {
        message[..fragment.len()].copy_from_slice(fragment);
        assembled.extend_from_slice(black_box(&message[..fragment.len()]));
    }
    let mut assembled = Buffer::from(assembled);
    let moved = Instant::now();
    black_box(decoder.decode(&mut assembled).expect("the stream is sound"));
    [encoded - start, moved - encoded, moved.elapsed()]
}

/// Medians as a JSON object: microseconds of each step, and the rate of the whole.
fn rates(runs: &[Steps], bytes: usize) -> String {
    let median = |of: &dyn Fn(&Steps) -> Duration| {
        let mut times: Vec<_> = runs.iter().map(of).collect();
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    let step = |index: usize| 1e6 * median(&|steps| steps[index]);
    let total = median(&|steps| steps.iter().sum());
    format!(
        "{{\"encode_us\": {:.1}, \"copy_us\": {:.1}, \"decode_us\": {:.1}, \"gb_per_s\": {:.2}}}",
        step(0),
        step(1),
        step(2),
        bytes as f64 / total / 1e9
    )
}

fn lineitem() -> RecordBatch {
    let numbers = |factor: i64| (0..ROWS as i64).map(move |row| row * factor % 200_000);
    let key = |factor| -> ArrayRef { Arc::new(Int64Array::from_iter_values(numbers(factor))) };
    let decimal = |factor| -> ArrayRef {
        let values = numbers(factor).map(i128::from);
        let array = Decimal128Array::from_iter_values(values);
        Arc::new(
            array
                .with_precision_and_scale(15, 2)
                .expect("15 digits are enough"),
        )
    };
    let date = |factor| -> ArrayRef {
        Arc::new(Date32Array::from_iter_values(
            numbers(factor).map(|day| (day % 2_500) as i32),
        ))
    };
    let pick = |values: &'static [&'static str]| -> ArrayRef {
        let values = numbers(7_919).map(|number| values[number as usize % values.len()]);
        Arc::new(StringViewArray::from_iter_values(values))
    };
    let comments = || {
        numbers(31).map(|number| {
            let words = "carefully final packages nag furiously across the even theodolites";
            &words[number as usize % 20..][..10 + number as usize % 34]
        })
    };
    let columns: Vec<ArrayRef> = vec![
        key(1),
        key(31),
        key(37),
        key(41),
        decimal(43),
        decimal(47),
        decimal(53),
        decimal(59),
        date(61),
        date(67),
        date(71),
        pick(&["A", "N", "R"]),
        pick(&["F", "O"]),
        pick(&[
            "DELIVER IN PERSON",
            "COLLECT COD",
            "NONE",
            "TAKE BACK RETURN",
        ]),
        pick(&["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]),
        Arc::new(StringViewArray::from_iter_values(comments())),
        Arc::new(StringArray::from_iter_values(comments())),
    ];
    let fields = columns.iter().enumerate();
    let field = |(index, column): (usize, &ArrayRef)| {
        let data_type: DataType = column.data_type().clone();
        Field::new(format!("column {index}"), data_type, false)
    };
    let schema = Schema::new(fields.map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns are of one length")
}
