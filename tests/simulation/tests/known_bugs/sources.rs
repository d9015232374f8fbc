//! What sources keep in checkpoints, in scenes that a seed draws too rarely.

use tidegate_pipeline::observe::Moment;
use tidegate_simulation::host::{Do, Ended};
use tidegate_simulation::source::{Mark, Pace, Rows, SimSource};

use crate::scene::Scene;

/// Files that are read are forgotten, and others get their names. Their positions lie beside the log, in layers: what is
/// forgotten in a newer one must not come back from an older one, or the next file begins in the middle.
#[tokio::test(start_paused = true)]
async fn a_file_that_was_forgotten_stays_forgotten_in_whatever_layer_its_position_lies() {
    let mut scene = Scene::register();
    // Most are read soon and stay where they are: the oldest layer is large, and is seldom written again.
    let mut marks = vec![vec![Mark::Good; 3]; 60];
    marks.extend(vec![vec![Mark::Good; 90]; 12]);
    let source = SimSource::new(&scene.world, Rows { marks, keys: 11 }, Pace { batch: 1, pause_ms: 8 }, &scene.dice);
    scene.spec.source = source.in_files(2).with_long_positions(9_000);
    scene.spec.settings.interval_ms = 25;
    for life in 0..100 {
        // Wherever the files stand, a run begins there.
        let ended = scene.live(vec![(Moment::Sealed, 3 + life % 3, Do::Crash)]).await;
        if !matches!(ended, Ended::Died) {
            break;
        }
    }
    scene.finish().await;
    scene.assert_each_row_once();
}
