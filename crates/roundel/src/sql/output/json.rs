//! A result as JSON: an array of objects in one line, whose values are as docs/user/output.md says.
//!
//! Arrow's writer does most of it; here is what it leaves out, or would write so that it cannot be read back.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{
    AnyDictionaryArray, Array, ArrayRef, AsArray, MapArray, StructArray, UnionArray,
};
use arrow::datatypes::{DataType, FieldRef, Fields, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::json::ArrayWriter;
use arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, NullableEncoder, WriterBuilder, make_encoder,
};

/// What numbers are called that have no digits.
pub const INFINITY: &str = "Infinity";
/// And below zero.
pub const MINUS_INFINITY: &str = "-Infinity";

/// Writes the rows of one result.
pub fn writer() -> ArrayWriter<Vec<u8>> {
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let builder = builder.with_encoder_factory(Arc::new(Exact));
    builder.build(Vec::new())
}

/// Encodes single values as the writer does.
pub fn options() -> EncoderOptions {
    let options = EncoderOptions::default().with_explicit_nulls(true);
    options.with_encoder_factory(Arc::new(Exact))
}

/// Encodes what Arrow's own encoders would lose or refuse: numbers that JSON has no digits for, names that come twice,
/// maps whose keys are no text, unions, and dictionaries that have NULL among their values.
#[derive(Debug)]
struct Exact;

impl EncoderFactory for Exact {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Float16 => {
                let values = array.as_primitive::<Float16Type>();
                Box::new(Floats(|index| Float::Single(values.value(index).to_f32())))
            }
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>();
                Box::new(Floats(|index| Float::Single(values.value(index))))
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>();
                Box::new(Floats(|index| Float::Double(values.value(index))))
            }
            DataType::Struct(fields) if distinct(fields).is_some() => {
                Box::new(Struct::new(array.as_struct(), options)?)
            }
            DataType::Map(entries, _) if !has_text_keys(entries) => {
                Box::new(Pairs::new(array.as_map(), options)?)
            }
            DataType::Union(..) => {
                let union = array
                    .as_any()
                    .downcast_ref::<UnionArray>()
                    .ok_or_else(|| ArrowError::JsonError("a union that is none".to_owned()))?;
                Box::new(Union::new(union, options)?)
            }
            DataType::Dictionary(..) if array.as_any_dictionary().values().null_count() > 0 => {
                Box::new(Dictionary::new(field, array.as_any_dictionary(), options)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.logical_nulls())))
    }
}

/// Names of columns or fields, each of which comes once; none when they are distinct by themselves.
fn distinct(fields: &Fields) -> Option<Vec<String>> {
    let all: HashSet<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    if all.len() == fields.len() {
        return None;
    }
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(fields.len());
    for field in fields {
        let name = field.name();
        let mut own = name.clone();
        let mut number = 0;
        // A number that another column bears by itself is its own.
        while taken.contains(&own) || (number > 0 && all.contains(own.as_str())) {
            number += 1;
            own = format!("{name}_{number}");
        }
        taken.insert(own.clone());
        names.push(own);
    }
    Some(names)
}

fn has_text_keys(entries: &FieldRef) -> bool {
    let DataType::Struct(fields) = entries.data_type() else {
        return false;
    };
    matches!(
        fields.first().map(|key| key.data_type()),
        Some(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    )
}

enum Float {
    Single(f32),
    Double(f64),
}

impl Float {
    /// What it is called where it has no digits.
    fn name(&self) -> Option<&'static str> {
        let value = match *self {
            Self::Single(value) => f64::from(value),
            Self::Double(value) => value,
        };
        match value {
            value if value.is_nan() => Some("NaN"),
            f64::INFINITY => Some(INFINITY),
            f64::NEG_INFINITY => Some(MINUS_INFINITY),
            _ => None,
        }
    }
}

/// Numbers with a decimal point, which are names where there are no digits.
struct Floats<F>(F);

impl<F: Fn(usize) -> Float> Encoder for Floats<F> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        let value = (self.0)(index);
        let written = match (value.name(), value) {
            (Some(name), _) => write!(out, "\"{name}\""),
            (None, Float::Single(value)) => serde_json::to_writer(out, &value).map_err(Into::into),
            (None, Float::Double(value)) => serde_json::to_writer(out, &value).map_err(Into::into),
        };
        written.expect("memory takes all bytes");
    }
}

/// Writes a value, or null where there is none.
fn encode(encoder: &mut NullableEncoder<'_>, index: usize, out: &mut Vec<u8>) {
    match encoder.is_null(index) {
        true => out.extend_from_slice(b"null"),
        false => encoder.encode(index, out),
    }
}

/// Objects whose fields have the same name more than once.
struct Struct<'a>(Vec<(Vec<u8>, NullableEncoder<'a>)>);

impl<'a> Struct<'a> {
    fn new(array: &'a StructArray, options: &'a EncoderOptions) -> Result<Self, ArrowError> {
        let names = distinct(array.fields()).unwrap_or_default();
        let fields = array.fields().iter().zip(array.columns()).zip(names);
        let fields = fields.map(|((field, column), name)| {
            let name =
                serde_json::to_vec(&name).map_err(|e| ArrowError::JsonError(e.to_string()))?;
            Ok((name, make_encoder(field, column, options)?))
        });
        Ok(Self(fields.collect::<Result<_, ArrowError>>()?))
    }
}

impl Encoder for Struct<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        let mut before = b'{';
        for (name, encoder) in &mut self.0 {
            out.push(before);
            out.extend_from_slice(name);
            out.push(b':');
            encode(encoder, index, out);
            before = b',';
        }
        out.push(b'}');
    }
}

/// Maps whose keys are no text: lists of objects.
struct Pairs<'a> {
    map: &'a MapArray,
    keys: NullableEncoder<'a>,
    values: NullableEncoder<'a>,
}

impl<'a> Pairs<'a> {
    fn new(map: &'a MapArray, options: &'a EncoderOptions) -> Result<Self, ArrowError> {
        let fields = map.entries().fields();
        Ok(Self {
            map,
            keys: make_encoder(&fields[0], map.keys(), options)?,
            values: make_encoder(&fields[1], map.values(), options)?,
        })
    }
}

impl Encoder for Pairs<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        let offsets = self.map.value_offsets();
        out.push(b'[');
        for entry in offsets[index]..offsets[index + 1] {
            if entry > offsets[index] {
                out.push(b',');
            }
            let entry = entry as usize;
            out.extend_from_slice(b"{\"key\":");
            encode(&mut self.keys, entry, out);
            out.extend_from_slice(b",\"value\":");
            encode(&mut self.values, entry, out);
            out.push(b'}');
        }
        out.push(b']');
    }
}

/// Unions: the value that is there, whatever its type.
struct Union<'a> {
    union: &'a UnionArray,
    children: Vec<(i8, NullableEncoder<'a>)>,
}

impl<'a> Union<'a> {
    fn new(union: &'a UnionArray, options: &'a EncoderOptions) -> Result<Self, ArrowError> {
        let DataType::Union(fields, _) = union.data_type() else {
            return Err(ArrowError::JsonError("a union that is none".to_owned()));
        };
        let children = fields.iter().map(|(id, field)| {
            let child: &ArrayRef = union.child(id);
            Ok((id, make_encoder(field, child, options)?))
        });
        Ok(Self {
            union,
            children: children.collect::<Result<_, ArrowError>>()?,
        })
    }
}

impl Encoder for Union<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        let id = self.union.type_id(index);
        let at = self.union.value_offset(index);
        match self.children.iter_mut().find(|(own, _)| *own == id) {
            Some((_, encoder)) => encode(encoder, at, out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

/// Encodes a dictionary array: for each row, the index of its value, and an encoder of the values.
struct Dictionary<'a> {
    keys: Vec<usize>,
    values: NullableEncoder<'a>,
}

impl<'a> Dictionary<'a> {
    fn new(
        field: &'a FieldRef,
        array: &'a dyn AnyDictionaryArray,
        options: &'a EncoderOptions,
    ) -> Result<Self, ArrowError> {
        Ok(Self {
            keys: array.normalized_keys(),
            values: make_encoder(field, array.values(), options)?,
        })
    }
}

impl Encoder for Dictionary<'_> {
    fn encode(&mut self, index: usize, out: &mut Vec<u8>) {
        encode(&mut self.values, self.keys[index], out);
    }
}
