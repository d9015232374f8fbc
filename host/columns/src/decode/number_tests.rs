use super::*;

fn number(text: &str) -> Number<'_> {
    let number = Number::scan(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"));
    assert_eq!(number.text, text);
    number
}

#[test]
fn the_grammar_is_that_of_json() {
    for text in ["0", "-0", "10", "1.5", "-0.10", "1e5", "1E+5", "1.25e-7", "123456789012345678901234567890"] {
        number(text);
    }
    for text in ["", "-", "+1", "01", "-01", ".5", "1.", "1.e5", "1e", "1e+", "e5", "NaN", "Infinity", "x"] {
        assert_eq!(Number::scan(text.as_bytes()), None, "{text}");
    }
    assert_eq!(Number::scan(b"12,").map(|n| n.text), Some("12"));
    assert_eq!(Number::whole(b"007").map(|n| n.integer()), Some(Ok((false, 7))));
    for text in ["7 ", " 7", "+7", "7,", "0x7", "1_0"] {
        assert_eq!(Number::whole(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn whole_numbers_are_exact_up_to_64_bits_and_then_refused() {
    assert_eq!(number("18446744073709551615").integer(), Ok((false, u64::MAX)));
    assert_eq!(number("18446744073709551616").integer(), Err(Misfit::Range));
    assert_eq!(number("-9223372036854775808").integer(), Ok((true, 1 << 63)));
    assert_eq!(number("9007199254740993").integer(), Ok((false, 9007199254740993)));
    assert_eq!(number("9007199254740993.0").integer(), Ok((false, 9007199254740993)));
    assert_eq!(number("1.5e1").integer(), Ok((false, 15)));
    assert_eq!(number("1e19").integer(), Ok((false, 10_000_000_000_000_000_000)));
    assert_eq!(number("1e20").integer(), Err(Misfit::Range));
    assert_eq!(number("1e999999999999999999999").integer(), Err(Misfit::Range));
    assert_eq!(number("0e999999999999999999999").integer(), Ok((false, 0)));
    assert_eq!(number("1.5").integer(), Err(Misfit::Fraction));
    assert_eq!(number("1e-1").integer(), Err(Misfit::Fraction));
    assert_eq!(number("1e-999999999999999999999").integer(), Err(Misfit::Fraction));
}

#[test]
fn decimals_keep_their_digits_or_are_refused() {
    let decimal = |text, precision, scale| number(text).decimal128(precision, scale);
    assert_eq!(decimal("12.5", 12, 2), Ok(1250));
    assert_eq!(decimal("-12.50", 12, 2), Ok(-1250));
    assert_eq!(decimal("0.1", 1, 1), Ok(1));
    assert_eq!(decimal("1.005", 12, 2), Err(Misfit::Places));
    assert_eq!(decimal("1.000", 12, 2), Ok(100));
    assert_eq!(decimal("1.25e1", 12, 2), Ok(1250));
    assert_eq!(decimal("1e2", 4, 2), Err(Misfit::Range));
    assert_eq!(decimal("99.99", 4, 2), Ok(9999));
    assert_eq!(decimal("100", 4, 2), Err(Misfit::Range));
    assert_eq!(decimal("100.00", 4, 2), Err(Misfit::Range));
    assert_eq!(decimal("1e400", 38, 0), Err(Misfit::Range));
    let nines = "9".repeat(38);
    assert_eq!(decimal(&nines, 38, 0), Ok(10i128.pow(38) - 1));
    assert_eq!(decimal(&format!("{nines}9"), 38, 0), Err(Misfit::Range));
    let wide = number("-1234567890123456789012345678901234567890.25").decimal256(60, 3);
    assert_eq!(wide.map(|value| value.to_string()), Ok("-1234567890123456789012345678901234567890250".to_owned()));
    assert_eq!(number(&"9".repeat(76)).decimal256(76, 0).map(|v| v.to_string()), Ok("9".repeat(76)));
    assert_eq!(number("12").decimal256(76, 76), Err(Misfit::Range));
}

#[test]
fn doubles_are_those_that_print_as_the_number() {
    for text in [
        "0",
        "0.1",
        "-0.3",
        "1e22",
        "1e23",
        "123456789012345",
        "9007199254740992",
        "0.30000000000000004",
        "0.10000000000000001",
        "2.2250738585072014e-308",
        "5e-324",
        "1.7976931348623157e308",
        "1e-7",
        "0.1000000000000000055511151231257827021181583404541015625",
        "100000000000000000000000.0",
    ] {
        let expected: f64 = text.parse().expect("a double");
        assert_eq!(number(text).double().map(f64::to_bits), Ok(expected.to_bits()), "{text}");
    }
    assert_eq!(number("-0.0").double().map(f64::to_bits), Ok((-0.0f64).to_bits()));
    assert_eq!(number("-0").double().map(f64::to_bits), Ok((-0.0f64).to_bits()));
    for text in ["9007199254740993", "0.12345678901234567890123", "1e-400", "4.95e-324", "0.1000000000000000055"] {
        let exact = number(text).double();
        assert!(exact == Err(Misfit::Inexact) || text == "0.1000000000000000055", "{text}: {exact:?}");
    }
    assert_eq!(number("1e309").double(), Err(Misfit::Range));
    assert_eq!(number(&format!("0.{}", "1".repeat(800))).double(), Err(Misfit::Inexact));
}

#[test]
fn single_precision_holds_fewer_digits() {
    assert_eq!(number("0.1").single(), Ok(0.1));
    assert_eq!(number("16777216").single(), Ok(16_777_216.0));
    assert_eq!(number("16777217").single(), Err(Misfit::Inexact));
    assert_eq!(number("3.4028235e38").single(), Ok(f32::MAX));
    assert_eq!(number("1e39").single(), Err(Misfit::Range));
    assert_eq!(number("1e-50").single(), Err(Misfit::Inexact));
    assert_eq!(number("0.123456789").single(), Err(Misfit::Inexact));
}
