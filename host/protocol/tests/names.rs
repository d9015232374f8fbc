//! Names, key ranges and short ids: what is taken, and what only looks like it.

use tidegate_protocol::ids::{Epoch, KeyRange, Nonce, PartId, PipelineId, RunId, SinkHash, SinkId};

fn range(first: u32, last: u32) -> KeyRange {
    KeyRange { first, last }
}

#[test]
fn a_nonce_is_read_only_as_it_is_written() {
    let nonce = Nonce([7; 10]);
    let text = nonce.to_string();
    assert_eq!(text.parse(), Ok(nonce));
    for wrong in [text.to_ascii_uppercase().as_str(), "", "aaaa", "1aaaaaaaaaaaaaaa", &text[..15]] {
        assert!(wrong.parse::<Nonce>().is_err(), "{wrong}");
    }
}

#[test]
fn ranges_that_cover_every_key_once_are_complete_in_any_order() {
    for count in [0, 1, 2, 3, 7, 100] {
        let mut ranges = KeyRange::split(count);
        ranges.reverse();
        assert!(KeyRange::complete(ranges), "{count}");
    }
    for wrong in [
        vec![],
        vec![range(1, u32::MAX)],
        vec![range(0, 5), range(5, u32::MAX)],
        vec![range(0, 5), range(7, u32::MAX)],
        vec![range(0, 5), range(6, 3)],
        vec![range(0, u32::MAX), range(0, u32::MAX)],
        vec![range(0, 5)],
    ] {
        assert!(!KeyRange::complete(wrong.clone()), "{wrong:?}");
    }
}

#[test]
fn ranges_overlap_when_they_share_a_key() {
    assert!(
        range(0, 5).overlaps(range(5, 9)) && range(5, 9).overlaps(range(0, 5)) && range(2, 3).overlaps(range(0, 9))
    );
    assert!(!range(0, 4).overlaps(range(5, 9)) && !range(5, 9).overlaps(range(0, 4)));
}

#[test]
fn every_key_has_the_owner_whose_range_holds_it() {
    for count in [1, 2, 3, 7] {
        let ranges = KeyRange::split(count);
        for key in [0, 1, u32::MAX / 3, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX - 1, u32::MAX] {
            let owner = ranges[KeyRange::owner(key, count) as usize];
            assert!(owner.first <= key && key <= owner.last, "{key} of {count}");
        }
    }
}

#[test]
fn a_short_name_is_read_back_only_as_it_was_minted() {
    let pipeline = PipelineId::new("p").expect("a legal name");
    let sink = SinkId::new("a").expect("a legal name");
    let run = RunId { number: 3, nonce: Nonce([7; 10]) };
    let part = PartId::mint(&pipeline, &sink, run, Epoch(12), 4, 1);
    let read = |short: &str| PartId::from_short(&pipeline, &sink, short);
    assert_eq!(read(&part.short), Some(part.clone()));
    assert_eq!(PartId::run_of_short(&part.short, &SinkHash::of(&pipeline, &sink).prefix()), Some(run));
    let with = |from: &str, to: &str| part.short.replacen(from, to, 1);
    for wrong in [
        with("-12-", "-012-"),
        with("-12-4-1", "-12-4"),
        with("-12-4-1", "-12-4-1-1"),
        with("-12-", "-+12-"),
        with("tg-", "tx-"),
        with("-12-4-1", ""),
        String::new(),
    ] {
        assert_eq!(read(&wrong), None, "{wrong}");
    }
    let other = SinkId::new("b").expect("a legal name");
    assert_eq!(PartId::from_short(&pipeline, &other, &part.short), None, "of another sink");
}
