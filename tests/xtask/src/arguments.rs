//! Arguments that several commands read alike.

use std::str::FromStr;

/// A number of which there must be some: with none nothing would be checked, and every figure would hold.
pub(crate) fn some<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a whole number from 1 on; 0 would check nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::some;

    #[test]
    fn nothing_is_no_number_of_checks() {
        assert_eq!(some::<u64>("7"), Ok(7));
        for text in ["0", "-1", "abc", "", "1.5", "18446744073709551616"] {
            assert!(some::<u64>(text).is_err(), "{text}");
        }
    }
}
