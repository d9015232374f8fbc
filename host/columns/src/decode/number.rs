//! Numbers as written become values of a type exactly, or not at all.

use std::borrow::Cow;

use arrow_buffer::i256;

/// Digits that a `u64` always holds.
const U64_DIGITS: usize = 19;
/// Digits of which every decimal number has a double of its own.
const F64_DIGITS: usize = 15;
/// No finite double has more significant digits.
const MOST_F64_DIGITS: usize = 767;
/// The same for single precision.
const F32_DIGITS: usize = 6;
const MOST_F32_DIGITS: usize = 112;

/// A number by the grammar of JSON, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number<'a> {
    /// All of it.
    pub(crate) text: &'a str,
    negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    /// Clamped to ±10^18 where it is written with more digits.
    exponent: i64,
}

/// Why a number has no value in a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It has a fraction and the type has none.
    Fraction,
    /// It is larger than the largest, or smaller than the smallest value.
    Range,
    /// More decimal places than the type has.
    Places,
    /// The nearest value of the type is another number.
    Inexact,
}

impl<'a> Number<'a> {
    /// The number at the start of `bytes`; how far it reaches is the length of its text. `None` if there is none.
    pub(crate) fn scan(bytes: &'a [u8]) -> Option<Self> {
        let negative = bytes.first() == Some(&b'-');
        let start = usize::from(negative);
        let integer = digits(&bytes[start..]);
        if integer.is_empty() || (integer.len() > 1 && integer[0] == b'0') {
            return None;
        }
        Self::behind_integer(bytes, negative, integer, start + integer.len())
    }

    /// A text that is a number and nothing else. Unlike in JSON it may begin with zeros.
    pub(crate) fn whole(text: &'a [u8]) -> Option<Self> {
        let negative = text.first() == Some(&b'-');
        let start = usize::from(negative);
        let integer = digits(&text[start..]);
        if integer.is_empty() {
            return None;
        }
        let number = Self::behind_integer(text, negative, integer, start + integer.len())?;
        (number.text.len() == text.len()).then_some(number)
    }

    fn behind_integer(bytes: &'a [u8], negative: bool, integer: &'a [u8], mut at: usize) -> Option<Self> {
        let mut fraction: &[u8] = &[];
        if bytes.get(at) == Some(&b'.') {
            fraction = digits(&bytes[at + 1..]);
            if fraction.is_empty() {
                return None;
            }
            at += 1 + fraction.len();
        }
        let mut exponent = 0;
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            let down = bytes.get(at) == Some(&b'-');
            at += usize::from(matches!(bytes.get(at), Some(b'-' | b'+')));
            let written = digits(&bytes[at..]);
            if written.is_empty() {
                return None;
            }
            at += written.len();
            let clamped = written.iter().fold(0i64, |value, digit| {
                value.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(1_000_000_000_000_000_000)
            });
            exponent = if down { -clamped } else { clamped };
        }
        let text = std::str::from_utf8(&bytes[..at]).ok()?;
        Some(Self { text, negative, integer, fraction, exponent })
    }

    /// Whether it is written without fraction and exponent.
    pub(crate) fn is_integer(&self) -> bool {
        self.fraction.is_empty() && self.text.len() == self.integer.len() + usize::from(self.negative)
    }

    /// Whether it begins with zeros that do not count.
    pub(crate) fn has_leading_zeros(&self) -> bool {
        self.integer.len() > 1 && self.integer[0] == b'0'
    }

    /// Digits that count, without zeros at either end, and the power of ten of the last one. No digits for zero.
    fn significant(&self) -> (Cow<'a, [u8]>, i64) {
        let mut digits = match (self.integer, self.fraction) {
            (integer, []) => Cow::Borrowed(integer),
            (integer, fraction) => Cow::Owned([integer, fraction].concat()),
        };
        // A slice's length fits.
        let mut power = self.exponent - self.fraction.len() as i64;
        let kept = digits.len() - digits.iter().rev().take_while(|&&digit| digit == b'0').count();
        power += (digits.len() - kept) as i64;
        let zeros = digits[..kept].iter().take_while(|&&digit| digit == b'0').count();
        match &mut digits {
            Cow::Borrowed(digits) => *digits = &digits[zeros..kept],
            Cow::Owned(digits) => {
                digits.truncate(kept);
                digits.drain(..zeros);
            }
        }
        (digits, power)
    }

    /// The digits of the number times 10^scale, which has at most `precision` of them.
    fn scaled(&self, precision: u8, scale: i8) -> Result<Vec<u8>, Misfit> {
        let (digits, power) = self.significant();
        if digits.is_empty() {
            return Ok(vec![b'0']);
        }
        let zeros = power + i64::from(scale);
        if zeros < 0 {
            return Err(if scale == 0 { Misfit::Fraction } else { Misfit::Places });
        }
        // Both are checked to be small before the sum is.
        if zeros > i64::from(precision) || digits.len() + zeros as usize > usize::from(precision) {
            return Err(Misfit::Range);
        }
        let mut digits = digits.into_owned();
        digits.resize(digits.len() + zeros as usize, b'0');
        Ok(digits)
    }

    /// A whole number: its sign and its magnitude.
    pub(crate) fn integer(&self) -> Result<(bool, u64), Misfit> {
        let digits = self.scaled(U64_DIGITS as u8 + 1, 0)?;
        let magnitude = ascii(&digits).parse().map_err(|_| Misfit::Range)?;
        Ok((self.negative, magnitude))
    }

    /// A decimal of at most 38 digits, as a multiple of 10^-scale.
    pub(crate) fn decimal128(&self, precision: u8, scale: i8) -> Result<i128, Misfit> {
        let magnitude = match self.short_decimal(scale) {
            Some(magnitude) if magnitude < 10i128.pow(u32::from(precision.min(38))) => magnitude,
            Some(_) => return Err(Misfit::Range),
            None => ascii(&self.scaled(precision, scale)?).parse().map_err(|_| Misfit::Range)?,
        };
        Ok(if self.negative { -magnitude } else { magnitude })
    }

    /// The usual case: few digits, no exponent, no more places than there are.
    fn short_decimal(&self, scale: i8) -> Option<i128> {
        let places = self.fraction.len();
        let missing = usize::try_from(scale).ok()?.checked_sub(places)?;
        if self.exponent != 0 || self.integer.len() + places >= U64_DIGITS || missing >= U64_DIGITS {
            return None;
        }
        let value =
            |digits: &[u8], before| digits.iter().fold(before, |v: u64, digit| v * 10 + u64::from(digit - b'0'));
        let digits = value(self.fraction, value(self.integer, 0));
        Some(i128::from(digits) * i128::from(10u64.pow(missing as u32)))
    }

    /// A decimal of at most 76 digits, as a multiple of 10^-scale.
    pub(crate) fn decimal256(&self, precision: u8, scale: i8) -> Result<i256, Misfit> {
        let digits = self.scaled(precision, scale)?;
        let magnitude = i256::from_string(ascii(&digits)).ok_or(Misfit::Range)?;
        Ok(if self.negative { magnitude.wrapping_neg() } else { magnitude })
    }

    /// A double that, written with as many digits, is this number again.
    pub(crate) fn double(&self) -> Result<f64, Misfit> {
        if let Some(value) = self.short_double() {
            return Ok(value);
        }
        let value: f64 = self.text.parse().map_err(|_| Misfit::Range)?;
        let written = |places| format!("{value:.places$e}");
        self.check_float(value.is_finite(), written, &format!("{value:e}"), MOST_F64_DIGITS).map(|()| value)
    }

    /// Few digits times a power of ten that is a double itself: one rounding, to the nearest.
    fn short_double(&self) -> Option<f64> {
        const POWERS: [f64; 23] = [
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
            1e19, 1e20, 1e21, 1e22,
        ];
        if self.integer.len() + self.fraction.len() > F64_DIGITS {
            return None;
        }
        let both = self.integer.iter().chain(self.fraction);
        let digits = both.fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0')) as f64;
        let power = self.exponent - self.fraction.len() as i64;
        let factor = *POWERS.get(usize::try_from(power.unsigned_abs()).ok()?)?;
        let value = if power < 0 { digits / factor } else { digits * factor };
        Some(if self.negative { -value } else { value })
    }

    /// The same in single precision.
    pub(crate) fn single(&self) -> Result<f32, Misfit> {
        let value: f32 = self.text.parse().map_err(|_| Misfit::Range)?;
        let few = self.integer.len() + self.fraction.len() <= F32_DIGITS;
        if few && self.exponent == 0 {
            return Ok(value);
        }
        let written = |places| format!("{value:.places$e}");
        self.check_float(value.is_finite(), written, &format!("{value:e}"), MOST_F32_DIGITS).map(|()| value)
    }

    /// `written` prints the value with a number of digits behind the first, and an exponent; `shortest` with as few as
    /// tell it from its neighbours, which is what programs write, and where a tie was broken differs in the last digit.
    fn check_float(
        &self,
        finite: bool,
        written: impl Fn(usize) -> String,
        shortest: &str,
        most: usize,
    ) -> Result<(), Misfit> {
        let (digits, power) = self.significant();
        if digits.is_empty() {
            return Ok(());
        }
        if !finite {
            return Err(Misfit::Range);
        }
        if digits.len() > most {
            return Err(Misfit::Inexact);
        }
        let is_this = |written: &str| {
            let Some((mantissa, exponent)) = written.split_once('e') else { return false };
            mantissa.bytes().filter(u8::is_ascii_digit).eq(digits.iter().copied())
                && exponent.parse() == Ok(power + digits.len() as i64 - 1)
        };
        if is_this(&written(digits.len() - 1)) || is_this(shortest) { Ok(()) } else { Err(Misfit::Inexact) }
    }
}

fn digits(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &bytes[..length]
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("ASCII digits are UTF-8")
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;
