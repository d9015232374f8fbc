//! Dates, times and instants as text, after RFC 3339; years beyond four digits as in ISO 8601, with their sign.

use std::sync::Arc;

use arrow_array::timezone::Tz;
use arrow_schema::TimeUnit;
use chrono::{DateTime, Offset, TimeZone};

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// How many of a unit a second has.
pub(crate) fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => NANOS,
    }
}

/// A point in time as it is written: seconds since 1970-01-01T00:00:00, in UTC if it came with an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
    pub(crate) zoned: bool,
}

impl Instant {
    /// `None` if it lies between two of the unit, or outside of what 64 bits of them hold.
    pub(crate) fn in_unit(&self, unit: TimeUnit) -> Option<i64> {
        exact(i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos), unit)
    }
}

/// Nanoseconds in another unit, if they are a whole number of it.
pub(crate) fn exact(nanos: i128, unit: TimeUnit) -> Option<i64> {
    let step = i128::from(NANOS / per_second(unit));
    if nanos % step != 0 {
        return None;
    }
    i64::try_from(nanos / step).ok()
}

/// Days since 1970-01-01 of `2013-01-31` or `+12013-01-31`.
pub(crate) fn parse_date(text: &[u8]) -> Option<i64> {
    let (days, rest) = date(text)?;
    rest.is_empty().then_some(days)
}

/// Nanoseconds since midnight of `10:00:00` or `10:00:00.25`; at most nine decimal places.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    let (seconds, nanos, rest) = time(text)?;
    rest.is_empty().then_some(seconds * NANOS + i64::from(nanos))
}

/// `2013-01-31T10:00:00.25+01:00`, with a blank for `T` too, with or without an offset.
pub(crate) fn parse_instant(text: &[u8]) -> Option<Instant> {
    let (days, rest) = date(text)?;
    let rest = match rest {
        [b'T' | b't' | b' ', rest @ ..] => rest,
        _ => return None,
    };
    let (seconds, nanos, rest) = time(rest)?;
    let local = days.checked_mul(DAY)?.checked_add(seconds)?;
    let (offset, zoned) = match rest {
        [] => (0, false),
        [b'Z' | b'z'] => (0, true),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 3600 + minutes * 60;
            (if *sign == b'-' { -offset } else { offset }, true)
        }
        _ => return None,
    };
    Some(Instant { seconds: local.checked_sub(offset)?, nanos, zoned })
}

fn date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, digits) = match text {
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => (0, text),
    };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // Without a sign exactly four, so that nothing else is taken for a year.
    if (sign == 0 && length != 4) || !(4..=12).contains(&length) {
        return None;
    }
    let year = number(&digits[..length])? * if sign < 0 { -1 } else { 1 };
    let [b'-', m1, m2, b'-', d1, d2, rest @ ..] = &digits[length..] else { return None };
    let (month, day) = (number(&[*m1, *m2])?, number(&[*d1, *d2])?);
    if !(1..=12).contains(&month) || day < 1 || day > days_of_month(year, month) {
        return None;
    }
    Some((days_from_civil(year, month, day), rest))
}

/// Seconds and nanoseconds since midnight. Leap seconds have no place in Arrow's types and are refused.
fn time(text: &[u8]) -> Option<(i64, u32, &[u8])> {
    let [h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = text else { return None };
    let (hours, minutes, seconds) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let seconds = hours * 3600 + minutes * 60 + seconds;
    let [b'.', rest @ ..] = rest else { return Some((seconds, 0, rest)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return None;
    }
    // What comes behind nanoseconds may be zeros only.
    let (counted, beyond) = rest[..length].split_at(length.min(9));
    if beyond.iter().any(|&digit| digit != b'0') {
        return None;
    }
    let nanos = number(counted)? * 10i64.pow(9 - counted.len() as u32);
    Some((seconds, u32::try_from(nanos).ok()?, &rest[length..]))
}

/// At most 18 digits.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. The year starts in March, so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Appends `2013-01-31`. Any number of days that is a number of seconds in 64 bits, or 32 bits of days.
pub(crate) fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_from_days(days);
    if (0..=9999).contains(&year) {
        two_digits(out, year / 100);
        two_digits(out, year % 100);
    } else {
        // A sign, and at least four digits.
        out.extend_from_slice(format!("{year:+05}").as_bytes());
    }
    out.push(b'-');
    two_digits(out, month);
    out.push(b'-');
    two_digits(out, day);
}

/// Appends `10:00:00`, with three, six or nine decimal places where they are not zero.
pub(crate) fn write_time(out: &mut Vec<u8>, seconds: i64, nanos: i64) {
    two_digits(out, seconds / 3600);
    out.push(b':');
    two_digits(out, seconds / 60 % 60);
    out.push(b':');
    two_digits(out, seconds % 60);
    if nanos == 0 {
        return;
    }
    let (value, places) = match nanos {
        _ if nanos % 1_000_000 == 0 => (nanos / 1_000_000, 3),
        _ if nanos % 1_000 == 0 => (nanos / 1_000, 6),
        _ => (nanos, 9),
    };
    out.push(b'.');
    let at = out.len();
    out.resize(at + places, b'0');
    let mut rest = value;
    for digit in out[at..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Two digits; what is larger than 99 cannot happen to parts of a time.
fn two_digits(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

/// Where instants of a column are shown.
#[derive(Debug, Clone)]
pub(crate) enum Zone {
    /// Nowhere: the column has no zone.
    None,
    /// With `Z`.
    Utc,
    /// With the offset that the zone has at the time.
    Of(Tz),
}

impl Zone {
    /// Of a timestamp's type.
    ///
    /// # Errors
    /// The zone is not known.
    pub(crate) fn new(name: Option<&Arc<str>>) -> Result<Self, String> {
        match name.map(AsRef::as_ref) {
            None => Ok(Self::None),
            Some("UTC" | "utc" | "Z" | "+00:00" | "-00:00" | "+0000" | "Etc/UTC" | "Zulu") => Ok(Self::Utc),
            Some(name) => name.parse().map(Self::Of).map_err(|_| format!("the time zone `{name}` is not known")),
        }
    }
}

/// Appends an instant: seconds and nanoseconds since 1970, in UTC if there is a zone.
pub(crate) fn write_instant(out: &mut Vec<u8>, seconds: i64, nanos: i64, zone: &Zone) {
    let offset = match zone {
        Zone::None | Zone::Utc => 0,
        // Beyond the years that chrono knows there is no telling; it is the same instant in UTC.
        Zone::Of(zone) => DateTime::from_timestamp(seconds, 0)
            .map_or(0, |at| zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()),
    };
    // Old local times are off by seconds too, which RFC 3339 cannot say.
    let offset = i64::from(offset - offset % 60);
    let local = seconds.saturating_add(offset);
    write_date(out, local.div_euclid(DAY));
    out.push(b'T');
    write_time(out, local.rem_euclid(DAY), nanos);
    match zone {
        Zone::None => {}
        Zone::Utc => out.push(b'Z'),
        Zone::Of(_) => {
            out.push(if offset < 0 { b'-' } else { b'+' });
            two_digits(out, offset.abs() / 3600);
            out.push(b':');
            two_digits(out, offset.abs() / 60 % 60);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> Option<Instant> {
        parse_instant(text.as_bytes())
    }

    fn written(seconds: i64, nanos: i64, zone: Option<&str>) -> String {
        let zone = Zone::new(zone.map(Arc::from).as_ref()).expect("a zone");
        let mut out = Vec::new();
        write_instant(&mut out, seconds, nanos, &zone);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn days_and_dates_belong_together() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2013-01-01", 15_706),
            ("0000-01-01", -719_528),
            ("-0001-12-31", -719_529),
            ("+10000-01-01", 2_932_897),
            ("9999-12-31", 2_932_896),
            ("+5881580-07-11", i64::from(i32::MAX)),
            ("-5877641-06-23", i64::from(i32::MIN)),
        ] {
            assert_eq!(parse_date(text.as_bytes()), Some(days), "{text}");
            let mut out = Vec::new();
            write_date(&mut out, days);
            assert_eq!(out, text.as_bytes());
        }
        for days in (-1_000_000..1_000_000).step_by(37) {
            let mut out = Vec::new();
            write_date(&mut out, days);
            assert_eq!(parse_date(&out), Some(days));
        }
        for text in [
            "",
            "2013-1-1",
            "2013-13-01",
            "2013-00-01",
            "2013-02-29",
            "1900-02-29",
            "2013-04-31",
            "2013-01-00",
            "20130101",
            "12013-01-01",
            "+123-01-01",
            "2013-01-01T",
            "2013/01/01",
            "+1234567890123-01-01",
            "2013-0a-01",
        ] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn instants_are_read_with_any_offset() {
        let utc = instant("2013-01-01T10:00:00Z").expect("an instant");
        assert_eq!((utc.seconds, utc.nanos, utc.zoned), (1_357_034_400, 0, true));
        assert_eq!(instant("2013-01-01 11:00:00.000+01:00"), Some(utc));
        assert_eq!(instant("2013-01-01t04:30:00.0000000000-05:30"), Some(utc));
        assert_eq!(instant("2013-01-01T10:00:00"), Some(Instant { zoned: false, ..utc }));
        for text in [
            "2013-01-01",
            "2013-01-01T10:00",
            "2013-01-01T24:00:00",
            "2013-01-01T10:60:00",
            "2013-06-30T23:59:60Z",
            "2013-01-01T10:00:00.",
            "2013-01-01T10:00:00.1234567891",
            "2013-01-01T10:00:00+1",
            "2013-01-01T10:00:00+24:00",
            "2013-01-01T10:00:00 UTC",
            "2013-01-01T10:00:00ZZ",
            "2013-01-01X10:00:00",
        ] {
            assert_eq!(instant(text), None, "{text}");
        }
    }

    #[test]
    fn instants_fit_a_unit_exactly_or_not_at_all() {
        let precise = instant("2013-01-01T10:00:00.123456789Z").expect("an instant");
        assert_eq!(precise.in_unit(TimeUnit::Nanosecond), Some(1_357_034_400_123_456_789));
        assert_eq!(precise.in_unit(TimeUnit::Microsecond), None);
        let milli = instant("1969-12-31T23:59:59.999Z").expect("an instant");
        assert_eq!(milli.in_unit(TimeUnit::Millisecond), Some(-1));
        assert_eq!(milli.in_unit(TimeUnit::Second), None);
        let far = instant("2300-01-01T00:00:00Z").expect("an instant");
        assert_eq!(far.in_unit(TimeUnit::Nanosecond), None);
        assert!(far.in_unit(TimeUnit::Microsecond).is_some());
    }

    #[test]
    fn instants_are_written_where_the_column_is() {
        assert_eq!(written(1_357_034_400, 0, None), "2013-01-01T10:00:00");
        assert_eq!(written(1_357_034_400, 120_000_000, Some("UTC")), "2013-01-01T10:00:00.120Z");
        assert_eq!(written(1_357_034_400, 1_000, Some("+05:30")), "2013-01-01T15:30:00.000001+05:30");
        assert_eq!(written(1_357_034_400, 1, Some("-02:00")), "2013-01-01T08:00:00.000000001-02:00");
        assert_eq!(written(-1, 999_000_000, Some("+00:00")), "1969-12-31T23:59:59.999Z");
        assert_eq!(written(1_372_672_800, 0, Some("Europe/Berlin")), "2013-07-01T12:00:00+02:00");
        // Local mean time, off by seconds.
        assert_eq!(written(-3_000_000_000, 0, Some("Europe/Berlin")), "1874-12-07T19:33:00+00:53");
        assert!(Zone::new(Some(&Arc::from("Middle/Earth"))).is_err());
    }

    #[test]
    fn the_ends_of_what_a_type_holds_are_written_and_read() {
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            // 64 bits of seconds reach beyond twelve digits of years.
            let ends = if unit == TimeUnit::Second {
                [-30_000_000_000_000_000, 30_000_000_000_000_000]
            } else {
                [i64::MIN, i64::MAX]
            };
            for value in ends {
                let (seconds, rest) = (value.div_euclid(per_second(unit)), value.rem_euclid(per_second(unit)));
                let text = written(seconds, rest * (NANOS / per_second(unit)), Some("UTC"));
                assert_eq!(instant(&text).and_then(|instant| instant.in_unit(unit)), Some(value), "{text}");
            }
        }
        written(i64::MAX, 0, None);
        written(i64::MIN, 0, Some("Europe/Berlin"));
    }
}
