//! What a disk may do to a log behind everybody's back, while no process runs.

use tidegate_store::disk::sim::Image;

use super::effect::Between;
use crate::store::SimStore;

const SECTOR: usize = 512;

/// Damages the newest record of a log on a local disk. False if there is none.
pub(crate) fn damage(store: &SimStore, how: Between) -> bool {
    let Some(mut image) = store.image() else { return false };
    let Some((path, frame)) = newest_frame(&image) else { return false };
    let Some(file) = image.file_mut(&path) else { return false };
    match how {
        // Behind the numbers of the sector and of the frame: in what the record says.
        Between::Corrupt => file[frame.start + 100] ^= 1,
        Between::Cut => file.truncate(frame.start),
        Between::Hollow => file.fill(0),
        Between::Forgotten => file[frame].fill(0),
        _ => return false,
    }
    store.put_image(image);
    true
}

/// Where the newest frame of the newest segment lies.
fn newest_frame(image: &Image) -> Option<(String, std::ops::Range<usize>)> {
    let segments = image.paths().into_iter().filter(|path| path.starts_with("log/") && path.ends_with(".log"));
    let path = segments.max()?;
    let file = image.file(&path)?;
    let last = (1..file.len() / SECTOR).rev().find(|at| file[at * SECTOR..][..SECTOR].iter().any(|byte| *byte != 0))?;
    let index = u32::from_le_bytes(file[last * SECTOR + 4..][..4].try_into().ok()?) as usize;
    let first = last.checked_sub(index).filter(|first| *first > 0)?;
    Some((path, first * SECTOR..(last + 1) * SECTOR))
}
