use arrow_schema::DataType;
use tidegate_protocol::plugin::Encoding;

use super::encode;
use crate::Schema;
use crate::decode::{CsvDecoder, CsvDialect, JsonDecoder, UnknownFields};

fn decoder(ddl: &str) -> JsonDecoder {
    JsonDecoder::new(&Schema::parse_ddl(ddl).expect("a schema"), UnknownFields::BadRow).expect("a decoder")
}

fn through(ddl: &str, lines: &str, encoding: Encoding) -> String {
    let decoded = decoder(ddl).decode(lines.as_bytes()).expect("decoded");
    assert_eq!(decoded.bad, [], "{lines}");
    String::from_utf8(encode(&decoded.batch, encoding).expect("encoded").to_vec()).expect("UTF-8")
}

#[test]
fn json_lines_come_back_as_they_were() {
    let ddl = "i BIGINT, u BIGINT UNSIGNED, d DOUBLE, x DECIMAL(12,2), t TEXT, b BOOLEAN, day DATE, \
               at TIMESTAMP(6) WITH TIME ZONE, local TIMESTAMP, bytes BYTEA, l STRUCT<a BIGINT[], b TEXT>[], s STRUCT<k REAL>";
    let lines = concat!(
        r#"{"i":-9223372036854775808,"u":18446744073709551615,"d":0.1,"x":1234567890.10,"t":"a\"\\\n\té\u0001","b":true,"#,
        r#""day":"2013-01-31","at":"2013-01-31T10:15:00.250Z","local":"2013-01-31T10:15:00","bytes":"00ff","#,
        r#""l":[{"a":[1,null],"b":"x"},null],"s":{"k":0.5}}"#,
        "\n",
        r#"{"i":null,"u":null,"d":null,"x":null,"t":null,"b":null,"day":null,"at":null,"local":null,"bytes":null,"l":null,"s":null}"#,
        "\n",
        r#"{"i":0,"u":0,"d":-0.0,"x":0.00,"t":"","b":false,"day":"0001-01-01","at":"1969-12-31T23:59:59.999999Z","#,
        r#""local":"1970-01-01T00:00:00","bytes":"","l":[],"s":{"k":null}}"#,
        "\n",
    );
    assert_eq!(through(ddl, lines, Encoding::JsonLines), lines);
}

#[test]
fn doubles_come_back_to_the_bit() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut lines = String::new();
    let mut values = Vec::new();
    for _ in 0..5000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = f64::from_bits(state);
        if value.is_finite() {
            lines.push_str(&format!("{{\"d\":{value:e}}}\n"));
            values.push(value.to_bits());
        }
    }
    let once = through("d DOUBLE", &lines, Encoding::JsonLines);
    let again = decoder("d DOUBLE").decode(once.as_bytes()).expect("decoded");
    let column = again.batch.column(0);
    let doubles: &arrow_array::Float64Array = arrow_array::cast::AsArray::as_primitive(column.as_ref());
    assert_eq!(doubles.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>(), values);
}

#[test]
fn what_is_no_number_is_a_text_that_comes_back() {
    let lines = "{\"d\":\"NaN\"}\n{\"d\":\"Infinity\"}\n{\"d\":\"-Infinity\"}\n{\"d\":12}\n{\"d\":1e300}\n";
    assert_eq!(through("d DOUBLE", lines, Encoding::JsonLines), lines);
}

#[test]
fn csv_comes_back_through_its_decoder() {
    let ddl = "i BIGINT, t TEXT, x DECIMAL(5,1), l TEXT[], b BOOLEAN";
    let lines = concat!(
        r#"{"i":1,"t":"a,\"b\"\nc","x":10.0,"l":["x","y\"z"],"b":true}"#,
        "\n",
        r#"{"i":null,"t":"","x":null,"l":null,"b":null}"#,
        "\n",
        r#"{"i":3,"t":null,"x":0.5,"l":[],"b":false}"#,
        "\n",
    );
    let records = through(ddl, lines, Encoding::Csv);
    assert_eq!(records, "1,\"a,\"\"b\"\"\nc\",10.0,\"[\"\"x\"\",\"\"y\\\"\"z\"\"]\",true\n,\"\",,,\n3,,0.5,[],false\n");
    let schema = Schema::parse_ddl(ddl).expect("a schema");
    let names: Vec<String> = schema.arrow().fields().iter().map(|field| field.name().clone()).collect();
    let mut csv = CsvDecoder::new(&schema, &names, CsvDialect::default(), UnknownFields::BadRow).expect("a decoder");
    let decoded = csv.decode(records.as_bytes()).expect("decoded");
    assert_eq!(decoded.bad, []);
    assert_eq!(String::from_utf8_lossy(&encode(&decoded.batch, Encoding::JsonLines).expect("encoded")), lines);
}

#[test]
fn an_arrow_stream_holds_the_same_batch() {
    let decoded = decoder("a BIGINT, t TEXT").decode(b"{\"a\":1,\"t\":\"x\"}\n{\"a\":2}\n").expect("decoded");
    let bytes = encode(&decoded.batch, Encoding::ArrowStream).expect("encoded");
    let mut reader = arrow_ipc::reader::StreamReader::try_new(&bytes[..], None).expect("a stream");
    assert_eq!(reader.next().expect("a batch").expect("intact"), decoded.batch);
    assert!(reader.next().is_none());
}

#[test]
fn rows_without_a_form_are_refused_with_their_column() {
    let field = arrow_schema::Field::new("d", DataType::Duration(arrow_schema::TimeUnit::Second), true);
    let schema = std::sync::Arc::new(arrow_schema::Schema::new(vec![field]));
    let batch = arrow_array::RecordBatch::new_empty(schema);
    let error = encode(&batch, Encoding::JsonLines).expect_err("no form");
    assert!(error.message.contains("`d`"), "{error}");
}

fn one_column(array: impl arrow_array::Array + 'static) -> arrow_array::RecordBatch {
    let array: arrow_array::ArrayRef = std::sync::Arc::new(array);
    arrow_array::RecordBatch::try_from_iter_with_nullable([("c", array, true)]).expect("one column")
}

#[test]
fn values_of_other_programs_that_have_no_text_are_refused_and_never_a_panic() {
    use arrow_array::{Date64Array, Time32SecondArray, Time64NanosecondArray};
    for batch in [
        one_column(Time32SecondArray::from(vec![Some(0), None, Some(-1)])),
        one_column(Time32SecondArray::from(vec![86_400])),
        one_column(Time64NanosecondArray::from(vec![i64::MIN])),
        one_column(Time64NanosecondArray::from(vec![i64::MAX])),
        one_column(Date64Array::from(vec![0, 1])),
    ] {
        for encoding in [Encoding::JsonLines, Encoding::Csv] {
            let error = encode(&batch, encoding).expect_err("no text");
            assert!(error.message.contains("`c`"), "{error}");
        }
    }
    let day = one_column(Time64NanosecondArray::from(vec![Some(0), None, Some(86_399_999_999_999)]));
    let lines = encode(&day, Encoding::JsonLines).expect("encoded");
    assert_eq!(&lines[..], b"{\"c\":\"00:00:00\"}\n{\"c\":null}\n{\"c\":\"23:59:59.999999999\"}\n");
    let date = one_column(Date64Array::from(vec![-86_400_000]));
    assert_eq!(&encode(&date, Encoding::Csv).expect("encoded")[..], b"1969-12-31\n");
}

#[test]
fn a_dictionary_without_values_holds_nulls() {
    use arrow_array::{Int32Array, StringArray, types::Int32Type};
    let values = std::sync::Arc::new(StringArray::from(Vec::<&str>::new()));
    let keys = Int32Array::from(vec![None, None]);
    let array = arrow_array::DictionaryArray::<Int32Type>::try_new(keys, values).expect("a dictionary");
    let batch = one_column(array);
    assert_eq!(&encode(&batch, Encoding::JsonLines).expect("encoded")[..], b"{\"c\":null}\n{\"c\":null}\n");
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let field = arrow_schema::Field::new("c", DataType::Int64, true);
    let schema = arrow_schema::Schema::new(vec![field.clone(), field]);
    let batch = arrow_array::RecordBatch::new_empty(std::sync::Arc::new(schema));
    let error = encode(&batch, Encoding::JsonLines).expect_err("twice");
    assert!(error.message.contains("`c` is there twice"), "{error}");
}
