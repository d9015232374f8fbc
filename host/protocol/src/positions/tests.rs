use std::collections::BTreeMap;

use super::*;

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn entry(number: u64, at: u64) -> (String, String) {
    (format!("folder/part-{number:06}.jsonl"), format!("{{\"offset\":{at},\"padding\":\"{}\"}}", "x".repeat(120)))
}

fn map(positions: &Positions) -> BTreeMap<String, String> {
    positions.entries().unwrap().iter().map(|(name, at)| (name.to_owned(), at.to_owned())).collect()
}

/// Bytes of pages that `after` has and `before` has not.
fn new_bytes(before: &Positions, after: &Positions) -> u64 {
    let known: Vec<_> = before.chunks().collect();
    after.chunks().filter(|chunk| !known.contains(chunk)).map(|chunk| chunk.bytes).sum()
}

#[test]
fn partitions_that_are_forgotten_take_no_room_for_ever() {
    let mut positions = Positions::new();
    for round in 0..300 {
        let moved = (0..40).map(|number| entry(round * 40 + number, 1));
        let old = round.checked_sub(2);
        let forgotten = old.into_iter().flat_map(|old| (0..40).map(move |n| (entry(old * 40 + n, 1).0, String::new())));
        positions = positions.advanced(moved.chain(forgotten));
        let entries = positions.entries().unwrap();
        assert_eq!(entries.iter().count(), entries.count());
        assert_eq!(entries.count(), if round == 0 { 40 } else { 80 });
        assert!(entries.get(&entry(round * 40, 1).0).is_some());
        assert!(old.is_none_or(|old| entries.get(&entry(old * 40, 1).0).is_none()));
        let kept: u64 = positions.chunks().map(|chunk| chunk.bytes).sum();
        assert!(kept < 300_000, "{round}: {kept} bytes");
    }
}

#[test]
fn positions_are_a_map_whatever_is_put_aside() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let mut positions = Positions::new();
        let mut model = BTreeMap::new();
        let names = [10, 300, 5000][dice.below(3) as usize];
        for at in 0..60 {
            let count = [1, 30, 1000][dice.below(3) as usize];
            let moved: Vec<_> = (0..dice.below(count) + 1).map(|_| entry(dice.below(names), at)).collect();
            model.extend(moved.iter().cloned());
            positions = positions.advanced(moved);
            let (name, _) = entry(dice.below(names), 0);
            assert_eq!(positions.entries().unwrap().get(&name), model.get(&name).map(String::as_str));
        }
        assert_eq!(map(&positions), model, "seed {seed}");
        assert_eq!(positions.entries().unwrap().count(), model.len());
        assert_eq!(positions.entries().unwrap().get("folder/z"), None);
        assert_eq!(positions.entries().unwrap().get(""), None);
    }
}

#[test]
fn none_and_forgotten_ones_are_no_positions() {
    assert!(Positions::new().is_empty());
    let one = Positions::from([entry(1, 1)]);
    assert!(!one.is_empty());
    assert_eq!(format!("{one:?}"), format!("{:?}", BTreeMap::from([entry(1, 1)])));
    assert!(one.advanced([(entry(1, 1).0, String::new())]).is_empty());
    // Forgotten while it lies in a layer: hidden, and not forgotten twice.
    let many: Positions = (0..5_000).map(|number| entry(number, 3)).collect();
    assert!(!many.is_empty() && format!("{many:?}").contains("layers"));
    let fewer = many.advanced([(entry(7, 0).0, String::new())]);
    assert_eq!((fewer.entries().unwrap().count(), fewer.entries().unwrap().get(&entry(7, 0).0)), (4_999, None));
}

#[test]
fn when_all_are_forgotten_no_layer_is_left() {
    let name = |number: u64| format!("folder/part-{number:06}.jsonl");
    let all: Positions = (0..20_000).map(|number| (name(number), "1".to_owned())).collect();
    assert!(all.pages().count() > 0);
    let none = all.advanced((0..20_000).map(|number| (name(number), String::new())));
    assert!(none.is_empty() && none.pages().count() == 0, "{none:?}");
    assert_eq!(none, Positions::new());
}

#[test]
fn a_position_longer_than_a_page_has_one_of_its_own() {
    let long = |number: u64| (entry(number, 0).0, "x".repeat(300_000));
    let positions: Positions = (0..4).map(long).collect();
    assert_eq!(positions.pages().count(), 4);
    assert_eq!(map(&positions), (0..4).map(long).collect());
}

#[test]
fn few_moves_among_very_many_write_little() {
    let mut dice = Dice(7);
    let mut positions: Positions = (0..100_000).map(|number| entry(number, 0)).collect();
    let all: u64 = positions.chunks().map(|chunk| chunk.bytes).sum();
    assert!(all > 15_000_000 && positions.recent.is_empty());
    let (mut written, mut recent) = (0, 0);
    for at in 1..=1000 {
        let next = positions.advanced((0..10).map(|_| entry(dice.below(100_000), at)));
        written += new_bytes(&positions, &next);
        recent += next.recent.iter().map(|(name, at)| page::entry_bytes(name, at) as u64).sum::<u64>();
        assert!(next.layers.len() <= 12 && next.pages().count() <= 80, "the seal stays small");
        positions = next;
    }
    assert!(written / 1000 < 20_000, "{} bytes of pages for each cut", written / 1000);
    assert!(recent / 1000 < 16 << 10, "{} bytes in each record", recent / 1000);
}

#[test]
fn the_same_few_moving_again_and_again_write_no_page() {
    let start: Positions = (0..50_000).map(|number| entry(number, 0)).collect();
    let mut positions = start.clone();
    for at in 1..200 {
        positions = positions.advanced((0..60).map(|number| entry(number * 13, at)));
        assert_eq!(new_bytes(&start, &positions), 0);
    }
    // All of them moving each time stay in the record as well, as long as they are few enough.
    let mut few = Positions::new();
    for at in 1..50 {
        few = few.advanced((0..1000).map(|number| entry(number, at)));
        assert_eq!(few.pages().count(), 0);
    }
}

#[test]
fn pages_that_nothing_fell_into_keep_their_names() {
    let mut positions: Positions = (0..60_000).map(|number| entry(number * 2, 0)).collect();
    let before: Vec<_> = positions.chunks().cloned().collect();
    assert!(before.len() >= 20);
    // All within one corner, and often enough that everything is merged.
    for at in 1..80 {
        positions = positions.advanced((0..2_000).map(|number| entry(number, at)));
    }
    let kept = positions.chunks().filter(|chunk| before.contains(chunk)).count();
    assert!(kept * 10 >= before.len() * 9, "{kept} of {}", before.len());
    assert_eq!(positions.entries().unwrap().count(), 61_000);
}

#[test]
fn a_merge_takes_over_the_pages_that_nothing_fell_into() {
    let before: Positions = (0..60_000).map(|number| entry(number, 0)).collect();
    let names: Vec<_> = before.chunks().cloned().collect();
    // As many again, all behind them: only the last page is written again.
    let after = before.advanced((60_000..120_000).map(|number| entry(number, 1)));
    assert_eq!(after.layers.len(), 1, "merged");
    let kept = after.chunks().filter(|chunk| names.contains(chunk)).count();
    assert_eq!(kept, names.len() - 1);
    assert_eq!(after.entries().unwrap().count(), 120_000);
    // Pages that have become small for such a layer are put together, although nothing fell into them.
    let small: Positions = (0..2_000).map(|number| entry(number, 0)).collect();
    let names: Vec<_> = small.chunks().cloned().collect();
    let grown = small.advanced((2_000..100_000).map(|number| entry(number, 1)));
    assert!(grown.chunks().all(|chunk| !names.contains(chunk)));
    assert_eq!(grown.entries().unwrap().count(), 100_000);
}

#[test]
fn a_layer_that_was_not_read_is_not_merged_however_much_comes_on_top() {
    let start: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    let mut unread = start.clone();
    unread.unload();
    let mut after = unread.advanced((0..6_000).map(|number| entry(number, 1)));
    assert_eq!(after.layers.len(), 2);
    assert_eq!(after.missing().count(), start.pages().count());
    after.share(&start);
    assert_eq!(map(&after), (0..6_000).map(|number| entry(number, 1)).collect());
}

#[test]
fn only_bytes_that_would_be_written_are_a_page() {
    use sha2::{Digest as _, Sha256};
    let reads = |bytes: &[u8]| {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
        let page = page::Page::named(StateChunk { sha256, bytes: bytes.len() as u64 });
        page.fill(bytes).is_ok()
    };
    assert!(reads(b"\xa2\x61a\x611\x61b\x612"));
    for (wrong, why) in [
        (&b"\xa2\x61b\x611\x61a\x612"[..], "not sorted"),
        (b"\xa2\x61a\x611\x61a\x612", "one twice"),
        (b"\xa9\x61a\x611", "more than there is room for"),
        (b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", "more than there is memory for"),
        (b"\xa2\x61a\x611", "fewer than it says"),
        (b"\xa1\x61a\x611\x00", "more behind it"),
        (b"\x81\x61a", "a list"),
        (b"\xa1\x61a\x01", "a number for a position"),
        (b"\xa1\x78\x01a\x611", "a length that is not in its shortest form"),
        (b"\xbf\x61a\x611\xff", "no length at all"),
        (b"\xa1\x61\xff\x611", "not text"),
        (b"\xa1\x79\x01", "half a length"),
        (b"", "nothing"),
    ] {
        assert!(!reads(wrong), "{why}");
    }
}

#[test]
fn pages_come_back_from_their_bytes_and_only_from_those() {
    let positions: Positions = (0..5_000).map(|number| entry(number, 3)).collect();
    let mut read = positions.clone();
    read.unload();
    assert_eq!(read, positions, "what is loaded makes no difference");
    assert_eq!(read.entries().unwrap_err().pages, read.pages().count());
    for (page, full) in read.missing().zip(positions.pages()) {
        let bytes = full.bytes().unwrap();
        for wrong in [&bytes[..bytes.len() - 1], &bytes[1..], b"", b"\xa0"] {
            page.fill(wrong).unwrap_err();
        }
        page.fill(&bytes).unwrap();
        page.fill(&bytes).unwrap();
    }
    assert_eq!(map(&read), map(&positions));

    // A clone shares what is filled in, and so does whatever was told to share.
    let mut third = positions.clone();
    third.unload();
    third.share(&read);
    assert_eq!(map(&third), map(&positions));
    third.unload();
    assert!(third.entries().is_err() && read.entries().is_ok(), "nobody else loses anything");
}

#[test]
fn layers_that_were_not_read_are_not_merged_and_nothing_is_lost() {
    let start: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    let mut unread = start.clone();
    unread.unload();
    let mut model = map(&start);
    for at in 1..30 {
        let moved: Vec<_> = (0..400).map(|number| entry(number * 5, at)).collect();
        model.extend(moved.iter().cloned());
        unread = unread.advanced(moved);
    }
    unread.share(&start);
    assert_eq!(map(&unread), model);
}

#[test]
fn records_hold_a_map_or_a_map_and_layers() {
    let few: Positions = Positions::from([entry(1, 1), entry(2, 2)]);
    let text = serde_json::to_string(&few).unwrap();
    let plain: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    assert_eq!(plain, map(&few));
    assert_eq!(serde_json::from_str::<Positions>(&text).unwrap(), few);

    let mut many: Positions = (0..5_000).map(|number| entry(number, 3)).collect();
    many = many.advanced([entry(17, 4)]);
    let text = serde_json::to_string(&many).unwrap();
    let read: Positions = serde_json::from_str(&text).unwrap();
    assert_eq!(read, many);
    assert!(read.entries().is_err());
    let half_a_name = format!("[{{}},[[{}1]]]", "1,".repeat(60));
    for wrong in
        ["7", "\"x\"", "[]", "[{}]", "[{},[]]", "[{},[[]]]", "[{},[[1,2,3]]]", "[{},[],0]", "[[],[]]", &half_a_name]
    {
        serde_json::from_str::<Positions>(wrong).unwrap_err();
    }
}
