//! Numbers, times and names as people read them.

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Milliseconds as `340ms`, `2.5s`, `3m 10s`, `2h 5m`, `3d 4h`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..=59 => format!("{seconds}.{}s", millis % 1000 / 100),
        60..=3599 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..=86399 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// Unix milliseconds as `2013-01-31 23:59:58 UTC`.
pub(crate) fn time(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, of_day) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", of_day / 3600, of_day % 3600 / 60, of_day % 60)
}

/// Days since 1970-01-01 as year, month, day: counted in cycles of 400 years that begin in March, so that the leap day is
/// the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// At most `most` characters, with `…` in the middle if something was left out.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most || most < 3 {
        return text.chars().take(most).collect();
    }
    let head = (most - 1) / 2;
    let tail = most - 1 - head;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(0, "row"), "0 rows");
    }

    #[test]
    fn times_are_read_in_utc() {
        assert_eq!(time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time(1_359_676_798_000), "2013-01-31 23:59:58 UTC");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(time(1_709_251_199_999), "2024-02-29 23:59:59 UTC");
        let _ = time(u64::MAX);
    }

    #[test]
    fn spans_use_two_units() {
        assert_eq!(
            [340, 2_500, 190_000, 7_500_000, 273_600_000].map(span),
            ["340ms", "2.5s", "3m 10s", "2h 5m", "3d 4h"]
        );
    }

    #[test]
    fn clipped_texts_keep_both_ends() {
        assert_eq!(clip("abcdefghij", 7), "abc…hij");
        assert_eq!(clip("abc", 7), "abc");
        assert_eq!(clip("äöü", 2), "äö");
    }
}
