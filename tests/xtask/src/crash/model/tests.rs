//! The model on traces written by hand.

use super::*;
use crate::crash::strace;

/// Writes a trace the way strace does, from lines without escapes.
fn disk(lines: &[&str]) -> Disk {
    let mut text = String::new();
    for line in lines {
        text.push_str("1 ");
        let mut quoted = false;
        let mut bracketed = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                '<' => bracketed = true,
                '>' => bracketed = false,
                c if quoted || bracketed => {
                    text.push_str(&format!("\\x{:02x}", c as u32));
                    continue;
                }
                _ => {}
            }
            text.push(c);
        }
        text.push('\n');
    }
    let mut disk = Disk::new("/r", &Image { entries: BTreeMap::new() });
    for call in strace::parse(&text).expect("the trace is whole") {
        disk.apply(&call).expect("the model knows the call");
    }
    disk
}

fn file<'a>(image: &'a Image, path: &str) -> Option<&'a [u8]> {
    match image.entries.get(path) {
        Some(Entry::File(_, bytes)) => Some(bytes),
        _ => None,
    }
}

const STAGE_AND_PUBLISH: [&str; 8] = [
    r#"openat(9</r>, "t", O_WRONLY|O_CREAT, 0666) = 3</r/t>"#,
    r#"write(3</r/t>, "hello", 5) = 5"#,
    r#"fsync(3</r/t>) = 0"#,
    r#"close(3</r/t>) = 0"#,
    r#"renameat(9</r>, "t", 9</r>, "f") = 0"#,
    r#"openat(AT_FDCWD</>, "/r", O_RDONLY) = 3</r>"#,
    r#"fsync(3</r>) = 0"#,
    r#"close(3</r>) = 0"#,
];

#[test]
fn what_was_flushed_survives_every_fate() {
    let disk = disk(&STAGE_AND_PUBLISH);
    for fate in [Fate::NothingUnflushed, Fate::Everything, Fate::Random(1), Fate::Journal(2), Fate::Zeroed] {
        let image = disk.image(7, fate);
        assert_eq!(file(&image, "f"), Some(&b"hello"[..]), "{fate:?}");
        assert_eq!(file(&image, "t"), None, "{fate:?}");
    }
}

#[test]
fn before_the_flush_of_the_directory_no_name_is_certain() {
    let disk = disk(&STAGE_AND_PUBLISH);
    assert!(disk.image(5, Fate::NothingUnflushed).entries.is_empty());
    assert_eq!(file(&disk.image(5, Fate::NamesOnly), "f"), Some(&b"hello"[..]), "the file itself was flushed");
}

#[test]
fn unflushed_contents_can_be_lost_zeroed_or_torn() {
    let long = "x".repeat(2000);
    let line = format!(r#"write(3</r/t>, "{long}", 2000) = 2000"#);
    let disk = disk(&[r#"openat(9</r>, "t", O_WRONLY|O_CREAT, 0666) = 3</r/t>"#, &line]);
    assert_eq!(file(&disk.image(1, Fate::NamesOnly), "t"), Some(&b""[..]));
    assert_eq!(file(&disk.image(1, Fate::Zeroed), "t"), Some(&[0; 2000][..]));
    let torn = disk.image(1, Fate::Torn(3));
    let torn = file(&torn, "t").expect("the name survives");
    assert!(torn.len() < 2000 && torn.len().is_multiple_of(512), "{}", torn.len());
    assert_eq!(file(&disk.image(1, Fate::Everything), "t").map(<[u8]>::len), Some(2000));
}

#[test]
fn a_write_that_began_before_the_flush_and_ended_after_it_is_not_covered() {
    let text = "1 openat(AT_FDCWD<\\x2f>, \"\\x2f\\x72\\x2f\\x74\", O_CREAT|O_WRONLY) = 3<\\x2f\\x72\\x2f\\x74>\n\
                1 write(3<\\x2f\\x72\\x2f\\x74>, \"\\x61\", 1 <unfinished ...>\n\
                2 fsync(3<\\x2f\\x72\\x2f\\x74>) = 0\n\
                1 <... write resumed>) = 1\n";
    let mut disk = Disk::new("/r", &Image { entries: BTreeMap::new() });
    for call in strace::parse(text).expect("the trace is whole") {
        disk.apply(&call).expect("the model knows the call");
    }
    assert_eq!(file(&disk.image(3, Fate::NamesOnly), "t"), Some(&b""[..]));
}

#[test]
fn a_rename_is_kept_only_with_the_name_it_took() {
    let disk = disk(&STAGE_AND_PUBLISH[..5]);
    for seed in 0..50 {
        let image = disk.image(4, Fate::Random(seed));
        assert!(image.entries.len() <= 1, "never both names: {:?}", image.entries.keys());
    }
    let kinds: HashSet<Vec<String>> =
        (0..50).map(|seed| disk.image(4, Fate::Random(seed)).entries.keys().cloned().collect()).collect();
    assert_eq!(kinds.len(), 3, "nothing, the old name, the new name");
}

#[test]
fn positions_follow_plain_writes_appends_and_seeks() {
    let disk = disk(&[
        r#"openat(9</r>, "a", O_RDWR|O_CREAT, 0666) = 3</r/a>"#,
        r#"write(3</r/a>, "abc", 3) = 3"#,
        r#"write(3</r/a>, "def", 3) = 3"#,
        r#"pwrite64(3</r/a>, "X", 1, 0) = 1"#,
        r#"lseek(3</r/a>, 1, SEEK_SET) = 1"#,
        r#"write(3</r/a>, "Y", 1) = 1"#,
        r#"openat(9</r>, "a", O_WRONLY|O_APPEND) = 4</r/a>"#,
        r#"write(4</r/a>, "Z", 1) = 1"#,
        r#"ftruncate(3</r/a>, 6) = 0"#,
        r#"linkat(9</r>, "a", 9</r>, "b", 0) = 0"#,
        r#"unlinkat(9</r>, "a", 0) = 0"#,
    ]);
    let image = disk.image(20, Fate::Everything);
    assert_eq!(file(&image, "b"), Some(&b"XYcdef"[..]));
    assert_eq!(image.entries.len(), 1);
}

#[test]
fn images_can_be_laid_out_and_read_back() {
    let disk = disk(&[
        r#"mkdirat(9</r>, "d", 0777) = 0"#,
        r#"openat(9</r>, "d/a", O_RDWR|O_CREAT, 0666) = 3</r/d/a>"#,
        r#"write(3</r/d/a>, "abc", 3) = 3"#,
        r#"linkat(9</r>, "d/a", 9</r>, "b", 0) = 0"#,
    ]);
    let image = disk.image(9, Fate::Everything);
    let folder = std::env::temp_dir().join(format!("tidegate-xtask-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    image.write(&folder).expect("the image can be written");
    let back = Image::read(&folder).expect("the image can be read");
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    assert_eq!(image.differences(&back), Vec::<String>::new());
    assert_eq!(file(&back, "b"), Some(&b"abc"[..]));
}

#[test]
fn a_rename_between_directories_may_leave_both_names_until_the_old_one_is_flushed() {
    let mut lines = vec![
        r#"mkdirat(9</r>, "d", 0777) = 0"#,
        r#"openat(9</r>, "d/a", O_RDWR|O_CREAT, 0666) = 3</r/d/a>"#,
        r#"renameat(9</r>, "d/a", 9</r>, "b") = 0"#,
        r#"openat(9</r>, "", O_RDONLY) = 4</r>"#,
        r#"fsync(4</r>) = 0"#,
        r#"openat(9</r>, "d", O_RDONLY) = 5</r/d>"#,
    ];
    let both = |disk: &Disk, point| {
        let images: Vec<Image> = (0..40).map(|seed| disk.image(point, Fate::Random(seed))).collect();
        assert!(images.iter().all(|image| file(image, "b").is_some()), "the new name was flushed");
        images.iter().filter(|image| file(image, "d/a").is_some()).count()
    };
    let seen = both(&disk(&lines), 5);
    assert!(seen > 0 && seen < 40, "{seen} of 40");
    lines.push(r#"fsync(5</r/d>) = 0"#);
    assert_eq!(both(&disk(&lines), 6), 0);
}

#[test]
fn scattered_sectors_are_old_or_new_as_a_whole() {
    let new = vec![7_u8; 1500];
    for choice in 0..20 {
        let mut old = vec![1_u8; 2048];
        put(&mut old, &Content::Write { offset: 100, bytes: new.clone() }, Survival::Scattered(choice));
        for sector in old.chunks(512) {
            let touched: Vec<u8> = sector.iter().copied().filter(|byte| *byte == 7).collect();
            let inside = sector.len() - sector.iter().filter(|byte| **byte == 1).count();
            assert_eq!(touched.len(), inside);
        }
        let whole: Vec<bool> =
            old[512..1536].chunks(512).map(|sector| sector.iter().all(|byte| *byte == sector[0])).collect();
        assert_eq!(whole, [true, true]);
    }
}
