//! Random schemas and rows go through every encoding and come back; damaged lines never take others with them.

use arrow_array::RecordBatch;
use serde_json::{Map, Value, json};
use tidegate_columns::Schema;
use tidegate_columns::decode::{CsvDecoder, CsvDialect, Decoded, JsonDecoder, UnknownFields};
use tidegate_columns::encode::encode;
use tidegate_protocol::plugin::Encoding;

/// A seeded source of choices (splitmix64).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// A type, as far as values of it are made here.
enum Type {
    Boolean,
    /// Name, and the number of bits below the sign.
    Signed(&'static str, u32),
    Unsigned(&'static str, u32),
    Double,
    /// Digits and scale.
    Decimal(u32, u32),
    Text,
    Date,
    Timestamp(bool),
    Bytes,
    List(Box<Type>),
    Struct(Vec<(String, Type)>),
}

fn name(at: usize, choices: &mut Choices) -> String {
    ["n", "Ünï", "a b", "q\"uote", "back\\slash", "line\nend", "select"][choices.below(7)].to_owned() + &at.to_string()
}

fn fields(count: usize, depth: usize, choices: &mut Choices) -> Vec<(String, Type)> {
    (0..count).map(|at| (name(at, choices), some_type(depth, choices))).collect()
}

fn some_type(depth: usize, choices: &mut Choices) -> Type {
    match choices.below(if depth > 2 { 15 } else { 18 }) {
        0 => Type::Boolean,
        1 => Type::Signed("TINYINT", 7),
        2 => Type::Signed("INT", 31),
        3 | 4 => Type::Signed("BIGINT", 63),
        5 => Type::Unsigned("SMALLINT UNSIGNED", 16),
        6 => Type::Unsigned("BIGINT UNSIGNED", 64),
        7 => Type::Double,
        8 => Type::Decimal(12, 2),
        9 => Type::Decimal(38, 20),
        10 | 11 => Type::Text,
        12 => Type::Date,
        13 => Type::Timestamp(choices.one_in(2)),
        14 => Type::Bytes,
        15 | 16 => Type::List(Box::new(some_type(depth + 1, choices))),
        _ => {
            let count = 1 + choices.below(3);
            Type::Struct(fields(count, depth + 1, choices))
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn column_list(fields: &[(String, Type)]) -> String {
    fields.iter().map(|(name, kind)| format!("{} {}", quoted(name), sql(kind))).collect::<Vec<_>>().join(", ")
}

fn sql(kind: &Type) -> String {
    match kind {
        Type::Boolean => "BOOLEAN".to_owned(),
        Type::Signed(name, _) | Type::Unsigned(name, _) => (*name).to_owned(),
        Type::Double => "DOUBLE".to_owned(),
        Type::Decimal(digits, scale) => format!("DECIMAL({digits},{scale})"),
        Type::Text => "TEXT".to_owned(),
        Type::Date => "DATE".to_owned(),
        Type::Timestamp(zoned) => format!("TIMESTAMP{}", if *zoned { " WITH TIME ZONE" } else { "" }),
        Type::Bytes => "BYTEA".to_owned(),
        Type::List(item) => format!("{}[]", sql(item)),
        Type::Struct(fields) => format!("STRUCT<{}>", column_list(fields)),
    }
}

/// A value's text in JSON. Decimals and doubles as the encoder writes them, so that texts can be compared.
fn value(kind: &Type, choices: &mut Choices) -> String {
    if choices.one_in(8) {
        return "null".to_owned();
    }
    match kind {
        Type::Boolean => choices.one_in(2).to_string(),
        Type::Signed(_, bits) => match choices.below(4) {
            0 => (-(1i128 << bits)).to_string(),
            1 => ((1i128 << bits) - 1).to_string(),
            _ => ((choices.next() as i64) >> (63 - bits)).to_string(),
        },
        Type::Unsigned(_, bits) => match choices.below(3) {
            0 => (u64::MAX >> (64 - bits)).to_string(),
            _ => (choices.next() >> (64 - bits)).to_string(),
        },
        Type::Double => match choices.below(3) {
            0 => f64::from_bits(choices.next() & !(1 << 62)).to_string(),
            1 => (choices.next() as i32).to_string(),
            _ => (f64::from(choices.next() as i32) / 1000.0).to_string(),
        },
        Type::Decimal(digits, scale) => {
            let whole = choices.next() % 10u64.pow((digits - scale).min(18));
            let places: String = (0..*scale).map(|_| char::from(b'0' + choices.below(10) as u8)).collect();
            format!("{}{whole}.{places}", if choices.one_in(2) && whole > 0 { "-" } else { "" })
        }
        Type::Text => json!(text(choices)).to_string(),
        Type::Date => {
            format!("\"{:04}-{:02}-{:02}\"", choices.below(10_000), 1 + choices.below(12), 1 + choices.below(28))
        }
        Type::Timestamp(zoned) => {
            let time = format!("{:02}:{:02}:{:02}", choices.below(24), choices.below(60), choices.below(60));
            let places = ["", ".250", ".000001"][choices.below(3)];
            let zone = if *zoned { "Z" } else { "" };
            format!("\"{:04}-{:02}-28T{time}{places}{zone}\"", choices.below(10_000), 1 + choices.below(12))
        }
        Type::Bytes => {
            let bytes: String = (0..choices.below(5)).map(|_| format!("{:02x}", choices.below(256))).collect();
            format!("\"{bytes}\"")
        }
        Type::List(item) => {
            let items: Vec<_> = (0..choices.below(4)).map(|_| value(item, choices)).collect();
            format!("[{}]", items.join(","))
        }
        Type::Struct(fields) => object(fields, choices),
    }
}

fn text(choices: &mut Choices) -> String {
    const PIECES: [&str; 12] =
        ["a", "\"", "\\", "\n", "\u{0}", "é", "😀", ",", "'", "plain text of some length", " ", "null"];
    (0..choices.below(5)).map(|_| PIECES[choices.below(PIECES.len())]).collect()
}

/// With its fields in some order, now and then one left out, and white space here and there.
fn object(fields: &[(String, Type)], choices: &mut Choices) -> String {
    let mut order: Vec<usize> = (0..fields.len()).collect();
    if choices.one_in(3) {
        let turn = choices.below(fields.len().max(1));
        order.rotate_left(turn);
    }
    let blank = if choices.one_in(4) { " " } else { "" };
    let mut members = Vec::new();
    for at in order {
        let (name, kind) = &fields[at];
        if !choices.one_in(10) {
            members.push(format!("{}{blank}:{blank}{}", json!(name), value(kind, choices)));
        }
    }
    format!("{{{blank}{}{blank}}}", members.join(&format!("{blank},")))
}

/// What a row means: every field of the schema, missing ones as null. Numbers by their text, where they have one form.
fn meaning(kind: &Type, value: &Value) -> Value {
    match (kind, value) {
        (Type::Struct(fields), Value::Object(object)) => Value::Object(row_meaning(fields, object)),
        (Type::List(item), Value::Array(items)) => items.iter().map(|value| meaning(item, value)).collect(),
        (Type::Double | Type::Decimal(..), Value::Number(number)) => json!(number.as_f64()),
        _ => value.clone(),
    }
}

fn row_meaning(fields: &[(String, Type)], object: &Map<String, Value>) -> Map<String, Value> {
    let field = |(name, kind): &(String, Type)| {
        (name.clone(), object.get(name).map_or(Value::Null, |value| meaning(kind, value)))
    };
    fields.iter().map(field).collect()
}

fn meanings(fields: &[(String, Type)], lines: &[u8]) -> Vec<Map<String, Value>> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let object: Map<String, Value> = serde_json::from_slice(line).expect("an object");
            row_meaning(fields, &object)
        })
        .collect()
}

fn decode(decoder: &mut JsonDecoder, lines: &[u8]) -> Decoded {
    let decoded = decoder.decode(lines).expect("decoded");
    let not_blank = lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    assert_eq!(decoded.batch.num_rows() + decoded.bad.len(), not_blank, "every line is a row or bad");
    decoded
}

/// What another reader makes of rows that are right: where lines are wrong it is lenient, and no measure.
fn read_by_arrow(schema: &Schema, lines: &[u8]) -> RecordBatch {
    let mut decoder = arrow_json::ReaderBuilder::new(schema.arrow().clone()).build_decoder().expect("a decoder");
    assert_eq!(decoder.decode(lines).expect("read"), lines.len());
    decoder.flush().expect("rows").expect("some")
}

#[test]
fn random_rows_of_random_schemas_come_back_from_every_encoding() {
    let mut rows = 0;
    for seed in 0..400 {
        let choices = &mut Choices(seed);
        let count = 2 + choices.below(8);
        let fields = fields(count, 0, choices);
        let schema = Schema::parse_ddl(&column_list(&fields)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(Schema::from_text(&schema.to_text()), Ok(schema.clone()), "seed {seed}");
        let lines: String = (0..20).map(|_| object(&fields, choices) + "\n").collect();

        let mut decoder = JsonDecoder::new(&schema, UnknownFields::BadRow).expect("a decoder");
        let decoded = decode(&mut decoder, lines.as_bytes());
        assert_eq!(decoded.bad, [], "seed {seed}: {lines}");
        assert_eq!(read_by_arrow(&schema, lines.as_bytes()), decoded.batch, "seed {seed}");
        let once = encode(&decoded.batch, Encoding::JsonLines).expect("JSON");
        assert_eq!(meanings(&fields, &once), meanings(&fields, lines.as_bytes()), "seed {seed}");
        assert_eq!(decode(&mut decoder, &once).batch, decoded.batch, "seed {seed}");

        let names: Vec<String> = fields.iter().map(|(name, _)| name.clone()).collect();
        let mut csv =
            CsvDecoder::new(&schema, &names, CsvDialect::default(), UnknownFields::BadRow).expect("a decoder");
        let records = encode(&decoded.batch, Encoding::Csv).expect("CSV");
        let from_csv = csv.decode(&records).expect("decoded");
        assert_eq!(from_csv.bad, [], "seed {seed}");
        assert_eq!(from_csv.batch, decoded.batch, "seed {seed}");

        let stream = encode(&decoded.batch, Encoding::ArrowStream).expect("a stream");
        let read = arrow_ipc::reader::StreamReader::try_new(&stream[..], None).expect("a stream").next();
        assert_eq!(read.expect("a batch").expect("whole"), decoded.batch, "seed {seed}");
        rows += decoded.batch.num_rows();
    }
    assert_eq!(rows, 8000);
}

#[test]
fn damaged_lines_are_bad_or_rows_and_leave_their_neighbours_as_they_were() {
    let (mut bad, mut still_good) = (0, 0);
    for seed in 1000..1400 {
        let choices = &mut Choices(seed);
        let count = 1 + choices.below(5);
        let fields = fields(count, 0, choices);
        let schema = Schema::parse_ddl(&column_list(&fields)).expect("a schema");
        let mut decoder = JsonDecoder::new(&schema, UnknownFields::BadRow).expect("a decoder");
        for _ in 0..10 {
            let (before, after) = (object(&fields, choices), object(&fields, choices));
            let mut damaged = object(&fields, choices).into_bytes();
            let at = choices.below(damaged.len());
            match choices.below(4) {
                0 => damaged.truncate(at),
                1 => damaged[at] = choices.below(256) as u8,
                2 => damaged.insert(at, b"{}[]\",:\\0-.eu\xff "[choices.below(15)]),
                _ => drop(damaged.remove(at)),
            }
            damaged.retain(|byte| *byte != b'\n');
            let neighbours = decode(&mut decoder, format!("{before}\n{after}\n").as_bytes());
            assert_eq!(neighbours.bad, [], "seed {seed}");
            let lines = [before.as_bytes(), b"\n", &damaged, b"\n", after.as_bytes()].concat();
            let decoded = decode(&mut decoder, &lines);
            let rows = decoded.batch.num_rows();
            assert_eq!(decoded.batch.slice(0, 1), neighbours.batch.slice(0, 1), "seed {seed}");
            assert_eq!(decoded.batch.slice(rows - 1, 1), neighbours.batch.slice(1, 1), "seed {seed}");
            if let [line] = &decoded.bad[..] {
                assert_eq!((line.line, &lines[line.bytes.clone()]), (1, &damaged[..]), "seed {seed}");
                bad += 1;
            } else if !damaged.trim_ascii().is_empty() {
                // What is taken for a row is valid to another reader too.
                serde_json::from_slice::<Value>(&damaged).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                still_good += 1;
            }
        }
    }
    assert!(bad > 2000 && still_good > 100, "{bad} bad, {still_good} good");
}
