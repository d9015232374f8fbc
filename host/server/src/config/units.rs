//! Durations and sizes as people write them.

use std::time::Duration;

const DURATION_UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Parses `250ms`, `1s`, `1h30m`: whole numbers, each with a unit, added up.
///
/// # Errors
/// What was expected.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let millis = sum(text, DURATION_UNITS).map_err(|e| format!("{e}, for example \"250ms\", \"10s\" or \"1h30m\""))?;
    Ok(Duration::from_millis(millis))
}

/// Parses `512B`, `64KiB`, `1MiB`.
///
/// # Errors
/// What was expected.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    sum(text, SIZE_UNITS).map_err(|e| format!("{e}, for example \"64KiB\" or \"1MiB\""))
}

fn sum(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let expected = || format!("expected a whole number and a unit ({})", names());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(expected());
    }
    let mut total = 0u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = match number {
            "" => return Err(expected()),
            _ => number.parse().map_err(|_| "the number is too large".to_owned())?,
        };
        let after = after.trim_start();
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(expected)?;
        total = number
            .checked_mul(factor)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| "the number is too large".to_owned())?;
        rest = after.trim_start();
    }
    Ok(total)
}

/// A duration as [`duration`] reads it, in the largest unit that fits without remainder.
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, factor) = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, factor)| millis != 0 && millis.is_multiple_of(*factor))
        .unwrap_or(&("ms", 1));
    format!("{}{unit}", millis / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_add_up_and_need_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for wrong in
            ["", "1", "s", "1.5s", "-1s", "1 fortnight", "1sé", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(duration("1").unwrap_err().contains("ms, s, m, h, d"));
    }

    #[test]
    fn sizes_know_both_kinds_of_prefix() {
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!(size("1 MB"), Ok(1_000_000));
        assert_eq!(size("1TiB"), Ok(1 << 40));
        assert!(size("1mib").unwrap_err().contains("KiB"));
    }

    #[test]
    fn durations_are_shown_as_they_are_read() {
        for text in ["250ms", "1s", "90s", "2h", "1d", "0ms"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
    }
}
