//! The grammar of JSON within one line: strict, bounded in depth, without values.

use std::fmt;

/// How deep values that have no column may lie in one another.
const DEEPEST: usize = 128;
/// Bytes of a value that a message shows.
const SHOWN: usize = 48;

/// Why a line is bad.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Names of the fields around the place, the innermost first.
    path: Vec<String>,
    message: String,
}

/// Faults are rare, and a pointer is cheap to hand up.
pub(crate) type Parsed<T> = Result<T, Box<Fault>>;

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Box<Self> {
        Box::new(Self { path: Vec::new(), message: message.into() })
    }

    /// The same, seen from the field around it.
    pub(crate) fn within(mut self: Box<Self>, name: &str) -> Box<Self> {
        self.path.push(name.to_owned());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            f.write_str("field `")?;
            for (index, name) in self.path.iter().rev().enumerate() {
                let dot = if index == 0 || name == "[]" { "" } else { "." };
                write!(f, "{dot}{name}")?;
            }
            f.write_str("`: ")?;
        }
        f.write_str(&self.message)
    }
}

/// A value's beginning, for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    let mut shown = String::new();
    for letter in text.chars() {
        // As it stands in the row, but for what a terminal would act upon.
        match letter.is_control() {
            true => shown.extend(letter.escape_debug()),
            false => shown.push(letter),
        }
    }
    shown + more
}

/// A place in one line of valid UTF-8.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self { bytes: line, at: 0 }
    }

    /// Everything from here on.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        // The place is never behind the end.
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// What was passed since `start`.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Goes on; `by` bytes were looked at.
    #[inline]
    pub(crate) fn skip(&mut self, by: usize) {
        self.at = (self.at + by).min(self.bytes.len());
    }

    #[inline]
    pub(crate) fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// Passes a byte if it is this one.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Passes `true`, `false` or `null`.
    #[inline]
    pub(crate) fn literal(&mut self, word: &'static str) -> Parsed<()> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.wrong(word));
        }
        self.at += word.len();
        Ok(())
    }

    /// The grammar is broken here.
    #[cold]
    pub(crate) fn wrong(&self, expected: &str) -> Box<Fault> {
        let found = match self.rest() {
            [] => "the end of the line".to_owned(),
            rest => format!("`{}`", shown(&rest[..rest.len().min(12)])),
        };
        Fault::new(format!("not valid JSON: expected {expected} at byte {}, found {found}", self.at))
    }

    /// The end of a line, maybe behind white space.
    pub(crate) fn end(&mut self) -> Parsed<()> {
        self.space();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.wrong("the end of the line")) }
    }

    /// Passes a string, whose opening quote is next, and gives its text if it holds no escapes. Otherwise its text is
    /// appended to `decoded`.
    ///
    /// # Errors
    /// It does not end, or holds a control character, or an escape that stands for nothing.
    #[inline]
    pub(crate) fn string(&mut self, decoded: &mut Vec<u8>) -> Parsed<Option<&'a [u8]>> {
        if !self.take(b'"') {
            return Err(self.wrong("a string"));
        }
        let start = self.at;
        self.at = text_end(self.bytes, start);
        match self.peek() {
            Some(b'"') => {
                let text = self.since(start);
                self.at += 1;
                Ok(Some(text))
            }
            Some(b'\\') => {
                decoded.extend_from_slice(self.since(start));
                self.escaped(decoded)?;
                Ok(None)
            }
            Some(_) => Err(self.wrong("a string without control characters; they have to be escaped")),
            None => Err(self.wrong("the closing quote of a string")),
        }
    }

    /// The rest of a string from its first backslash on.
    fn escaped(&mut self, decoded: &mut Vec<u8>) -> Parsed<()> {
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) if byte >= 0x20 => {
                    let start = self.at;
                    self.at = text_end(self.bytes, start);
                    decoded.extend_from_slice(self.since(start));
                }
                Some(_) => return Err(self.wrong("a string without control characters; they have to be escaped")),
                None => return Err(self.wrong("the closing quote of a string")),
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        let start = self.clone();
        self.at += 1;
        let Some(kind) = self.peek() else { return Err(start.wrong("an escape")) };
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex().ok_or_else(|| start.wrong("four hexadecimal digits behind \\u"))?;
                let code = match first {
                    0xd800..=0xdbff => {
                        let pair = self.rest().starts_with(b"\\u");
                        self.skip(if pair { 2 } else { 0 });
                        match self.hex().filter(|_| pair) {
                            Some(second @ 0xdc00..=0xdfff) => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                            _ => first,
                        }
                    }
                    other => other,
                };
                // What is left are halves of surrogate pairs.
                char::from_u32(code).ok_or_else(|| start.wrong("a character; this is half of a surrogate pair"))?
            }
            _ => return Err(start.wrong("one of the escapes of JSON")),
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        let value = digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))?;
        self.at += 4;
        Some(value)
    }

    /// Passes a value of any kind.
    pub(crate) fn value(&mut self) -> Parsed<()> {
        self.value_at(0)
    }

    fn value_at(&mut self, depth: usize) -> Parsed<()> {
        if depth > DEEPEST {
            return Err(Fault::new(format!("values lie in one another more than {DEEPEST} deep")));
        }
        let mut unused = Vec::new();
        match self.peek() {
            Some(b'"') => self.string(&mut unused).map(drop),
            Some(b'{') => {
                self.at += 1;
                self.space();
                if self.take(b'}') {
                    return Ok(());
                }
                loop {
                    unused.clear();
                    self.string(&mut unused)?;
                    self.space();
                    if !self.take(b':') {
                        return Err(self.wrong("`:`"));
                    }
                    self.space();
                    self.value_at(depth + 1)?;
                    self.space();
                    if self.take(b'}') {
                        return Ok(());
                    }
                    if !self.take(b',') {
                        return Err(self.wrong("`,` or `}`"));
                    }
                    self.space();
                }
            }
            Some(b'[') => {
                self.at += 1;
                self.space();
                if self.take(b']') {
                    return Ok(());
                }
                loop {
                    self.value_at(depth + 1)?;
                    self.space();
                    if self.take(b']') {
                        return Ok(());
                    }
                    if !self.take(b',') {
                        return Err(self.wrong("`,` or `]`"));
                    }
                    self.space();
                }
            }
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => match super::number::Number::scan(self.rest()) {
                Some(number) => {
                    self.skip(number.text.len());
                    Ok(())
                }
                None => Err(self.wrong("a value")),
            },
        }
    }
}

/// Where a string's plain text ends: at a quote, a backslash, a control character or the end. Eight bytes at a time.
#[inline]
pub(crate) fn text_end(bytes: &[u8], start: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    /// High bits of bytes that are zero; beyond the first such byte there may be others.
    fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGH
    }
    let mut at = start;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*eight);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let found = zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c)) | control;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let plain = |byte: &&u8| **byte >= 0x20 && !matches!(**byte, b'"' | b'\\');
    at + bytes.get(at..).unwrap_or_default().iter().take_while(plain).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Parsed<()> {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.space();
        cursor.value()?;
        cursor.end()
    }

    #[test]
    fn every_short_text_is_valid_exactly_if_serde_json_says_so() {
        // Half pairs are valid to serde_json where it does not look at a string's value; here they have no value.
        let mut valid = 0;
        for alphabet in ["{}\":,1a ", "[],1.-0e", "\"\\n\u{1}u0/", "truefalsn", "-0+.eE1 "] {
            let letters: Vec<char> = alphabet.chars().collect();
            for length in 1..=6u32 {
                for number in 0..letters.len().pow(length) {
                    let text: String =
                        (0..length).map(|place| letters[number / letters.len().pow(place) % letters.len()]).collect();
                    let expected = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
                    assert_eq!(value(&text).is_ok(), expected, "{text:?}");
                    valid += usize::from(expected);
                }
            }
        }
        assert!(valid > 5_000, "{valid}");
    }

    #[test]
    fn strings_are_decoded() {
        let decoded = |text: &str| {
            let mut decoded = Vec::new();
            let plain = Cursor::new(text.as_bytes()).string(&mut decoded)?;
            Ok::<_, Box<Fault>>(String::from_utf8(plain.map_or(decoded, <[u8]>::to_vec)).expect("UTF-8"))
        };
        for text in [
            r#""""#,
            r#""abc""#,
            r#""a long text without anything""#,
            r#""\"\\\/\b\f\n\r\t""#,
            r#""é\u00e9\uD83D\ude00x""#,
            r#""0123456\n89012345678""#,
            r#""\u0000""#,
        ] {
            let expected: String = serde_json::from_str(text).expect("valid");
            assert_eq!(decoded(text).expect(text), expected);
        }
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
            r#""\ud800\u00""#,
            r#""\x""#,
            r#""\u12g4""#,
            r#""abc"#,
            r#""\"#,
            r#""\u"#,
            "\"a\tb\"",
            "\"a long text with\na line end\"",
            "\"\\n\u{1f}\"",
        ] {
            assert!(decoded(text).is_err(), "{text}");
        }
    }

    #[test]
    fn plain_text_ends_at_the_first_special_byte() {
        for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
            for length in 0..40 {
                let mut text = vec![b'a'; length];
                text.push(special);
                text.extend_from_slice(b"\"\x00\\ and more text behind it");
                assert_eq!(text_end(&text, 0), length);
            }
        }
        let harmless: Vec<u8> = (0x20..=0xff).filter(|byte| !matches!(byte, b'"' | b'\\')).collect();
        assert_eq!(text_end(&harmless, 0), harmless.len());
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(value(&nested(100)).is_ok());
        assert!(value(&nested(1000)).is_err());
        assert!(value(&"[".repeat(1_000_000)).is_err());
        assert!(value(&"{\"a\":".repeat(1_000_000)).is_err());
    }
}
