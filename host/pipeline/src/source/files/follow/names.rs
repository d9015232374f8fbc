//! What names tell: which file was rotated out of which.

/// The names that a file may have had before it was rotated or copied to `name`, within the same directory:
/// `app.log.1` and `app.log-20261130` were `app.log`, and so was `app-20261130.log`. Never `name` itself.
pub(super) fn origins(name: &str) -> impl Iterator<Item = String> + '_ {
    let file = name.rfind('/').map_or(0, |at| at + 1);
    let extension = name[file..].rfind('.').map(|at| &name[file + at..]);
    let cuts = name[file..].char_indices().filter(|(at, c)| *at > 0 && matches!(c, '.' | '-' | '_' | '~'));
    cuts.flat_map(move |(at, _)| {
        let stem = &name[..file + at];
        let again = extension.map(|extension| format!("{stem}{extension}")).filter(|again| again != name);
        std::iter::once(stem.to_owned()).chain(again)
    })
}

/// Whether `name` is what rotation makes of the name `log`: the same with a number or a date in it.
pub(super) fn is_rotated(name: &str, log: &str) -> bool {
    let number = |text: &str| {
        text.starts_with(['.', '-', '_'])
            && text.contains(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '_' | ':' | 'T' | 'Z'))
    };
    if name.strip_prefix(log).is_some_and(number) {
        return true;
    }
    let file = log.rfind('/').map_or(0, |at| at + 1);
    let Some(dot) = log[file..].rfind('.').filter(|dot| *dot > 0) else { return false };
    let (stem, extension) = log.split_at(file + dot);
    name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(extension)).is_some_and(number)
}

/// Whether the name is one of a compressed file.
pub(super) fn is_compressed(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    matches!(extension, "gz" | "gzip" | "zst" | "zstd" | "bz2" | "xz" | "lz4")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_name_leads_back_to_the_name_it_was_rotated_from() {
        for (rotated, origin) in [
            ("d/app.log.1", "d/app.log"),
            ("app.log-20261130", "app.log"),
            ("app.log~", "app.log"),
            ("a/b.c/app-2026-11-30.log", "a/b.c/app.log"),
            ("app.1.log", "app.log"),
            ("app.log.2026-11-30.17", "app.log"),
        ] {
            assert!(
                origins(rotated).any(|name| name == origin),
                "{rotated}: {:?}",
                origins(rotated).collect::<Vec<_>>()
            );
        }
        for (other, name) in [
            ("d/data.2.jsonl", "d/data.1.jsonl"),
            ("b.log", "a.log"),
            ("app.log", "app.log"),
            ("x/app.log.1", "app.log"),
        ] {
            assert!(origins(other).all(|origin| origin != name), "{other} is not of {name}");
        }
    }

    #[test]
    fn a_number_or_a_date_makes_a_rotated_name_and_a_word_does_not() {
        for rotated in [
            "d/app.log.1",
            "d/app.log-20261130",
            "d/app-2026-11-30.log",
            "d/app.log.2026-11-30T17:00:00Z",
            "d/app.12.log",
        ] {
            assert!(is_rotated(rotated, "d/app.log"), "{rotated}");
        }
        for other in
            ["d/app.log", "d/app.log.1.gz", "d/app.log.lock", "d/app.logs", "d/app2.log", "e/app.log.1", "d/app-x.log"]
        {
            assert!(!is_rotated(other, "d/app.log"), "{other}");
        }
    }
}
