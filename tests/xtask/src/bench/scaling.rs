//! Whether the time per row stays what it is: over source partitions, subtasks and the size of the input.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::{Bench, run_unchanged};
use crate::figure::{Figure, Op};
use crate::flights::{split, write_lines};
use crate::workshop::{Plan, Workshop, free_bytes};

/// Bytes of ten times the input of ten copies, in and out, and some.
const ROOM_FOR_LARGEST: u64 = 25_000_000_000;
const PARTITIONS: [u32; 3] = [12, 120, 1000];
const SUBTASKS: [u32; 4] = [1, 2, 4, 8];

/// One measured place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    partitions: u32,
    subtasks: u32,
    /// Copies of the flights, times ten: a tenth of the input is less than a copy.
    tenths: usize,
}

/// Nanoseconds per row.
#[derive(Debug, Clone, Copy)]
struct PerRow {
    cpu: f64,
    wall: f64,
}

/// The largest CPU time per row over the smallest, along each axis; the figure is the worst axis.
pub(super) fn scaling(bench: &mut Bench) -> Result<()> {
    let tenths = bench.arguments.copies * 10;
    let usual = Place { partitions: PARTITIONS[0], subtasks: 2, tenths };
    let mut sizes = vec![bench.arguments.copies, tenths];
    if bench.arguments.largest {
        anyhow::ensure!(
            free_bytes(&bench.disk)? > ROOM_FOR_LARGEST,
            "`{}` has no room for ten times the input",
            bench.disk.display()
        );
        sizes.push(tenths * 10);
    }
    let axes: [(&str, Vec<Place>); 3] = [
        ("source partitions", PARTITIONS.map(|partitions| Place { partitions, ..usual }).to_vec()),
        ("subtasks", SUBTASKS.map(|subtasks| Place { subtasks, ..usual }).to_vec()),
        ("size of the input", sizes.into_iter().map(|tenths| Place { tenths, ..usual }).collect()),
    ];
    let mut known: Vec<(Place, Vec<PerRow>)> = Vec::new();
    for place in axes.iter().flat_map(|(_, places)| places) {
        if !known.iter().any(|(other, _)| other == place) {
            known.push((*place, measure(bench, *place)?));
        }
    }
    let median = |place: &Place, of: fn(&PerRow) -> f64| -> Result<f64> {
        let (_, rows) = known.iter().find(|(other, _)| other == place).context("every place was measured")?;
        let mut values: Vec<f64> = rows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        Ok(values[values.len() / 2])
    };
    let mut worst: f64 = 0.0;
    let mut panels = Vec::new();
    for (axis, places) in &axes {
        let cpu = places.iter().map(|place| median(place, |row| row.cpu)).collect::<Result<Vec<_>>>()?;
        let wall = places.iter().map(|place| median(place, |row| row.wall)).collect::<Result<Vec<_>>>()?;
        let ratio = cpu.iter().copied().fold(0.0, f64::max) / cpu.iter().copied().fold(f64::INFINITY, f64::min);
        eprintln!("{axis}: CPU ns per row {cpu:.0?}, wall {wall:.0?}; largest over smallest CPU {ratio:.2}");
        worst = worst.max(ratio);
        let at = |place: &Place| match *axis {
            "subtasks" => place.subtasks.to_string(),
            "source partitions" => place.partitions.to_string(),
            _ => format!("{:.1} GB", place.tenths as f64 / tenths as f64 * gigabytes(bench)),
        };
        panels.push(Panel { title: (*axis).to_owned(), at: places.iter().map(at).collect(), cpu, wall });
    }
    let plot = match &bench.arguments.plot {
        Some(plot) => plot.clone(),
        None => crate::product::target_directory()?.join("xtask/scaling.svg"),
    };
    draw(&plot, &panels).map_err(|error| anyhow!("cannot draw `{}`: {error}", plot.display()))?;
    eprintln!("drawn in {}", plot.display());
    // Super-linear cost would show as a factor of eight to a hundred; two leaves room for a start that few rows share.
    bench.figures.show(Figure::with_spread("scaling", worst, Op::AtMost, 2.0, bench.arguments.rounds, 0.0))
}

/// Of the usual input.
fn gigabytes(bench: &Bench) -> f64 {
    let bytes: usize = bench.lines.iter().map(|line| line.len() + 1).sum();
    (bytes * bench.arguments.copies) as f64 / 1e9
}

fn measure(bench: &Bench, place: Place) -> Result<Vec<PerRow>> {
    let workshop = Workshop::new(&bench.disk, "scaling")?;
    write_input(&bench.lines, &workshop.inputs(), place)?;
    workshop.plan(&Plan { interval_ms: 1000, subtasks: place.subtasks, ..Plan::default() })?;
    let sent = workshop.sent()?;
    let mut rows = Vec::new();
    for _ in bench.rounds() {
        let (cost, _) = run_unchanged(&bench.binary, &workshop, &sent)?;
        let per_row = |seconds: f64| seconds * 1e9 / sent.total() as f64;
        rows.push(PerRow { cpu: per_row(cost.cpu_seconds), wall: per_row(cost.wall_seconds) });
    }
    eprintln!(
        "{} partitions, {} subtasks, {} rows: {:.0?}",
        place.partitions,
        place.subtasks,
        sent.total(),
        rows.iter().map(|row| row.cpu).collect::<Vec<_>>()
    );
    workshop.remove()?;
    Ok(rows)
}

fn write_input(lines: &[String], folder: &Path, place: Place) -> Result<()> {
    let rows = lines.len() * place.tenths / 10;
    let all: Vec<&String> = lines.iter().cycle().take(rows).collect();
    for (part, lines) in split(&all, usize::try_from(place.partitions)?).into_iter().enumerate() {
        write_lines(&folder.join(format!("flights-{part:04}.jsonl")), lines)?;
    }
    Ok(())
}

/// One axis of the plot.
struct Panel {
    title: String,
    at: Vec<String>,
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

fn draw(path: &PathBuf, panels: &[Panel]) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let area = SVGBackend::new(path, (1080, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = panels.iter().flat_map(|panel| panel.cpu.iter().chain(&panel.wall)).copied().fold(0.0, f64::max);
    for (panel, area) in panels.iter().zip(area.split_evenly((1, panels.len().max(1)))) {
        let last = panel.at.len().saturating_sub(1) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel.title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(32)
            .y_label_area_size(52)
            .build_cartesian_2d(-0.3..last + 0.3, 0.0..most * 1.15)?;
        let label = |x: &f64| {
            let near = x.round();
            let there = (x - near).abs() < 0.01 && near >= 0.0;
            there.then(|| panel.at.get(near as usize).cloned()).flatten().unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(panel.at.len() * 2)
            .x_label_formatter(&label)
            .y_desc("ns per row")
            .draw()?;
        for (name, values, colour) in [("CPU", &panel.cpu, &BLUE), ("wall clock", &panel.wall, &RED)] {
            let points = || values.iter().enumerate().map(|(index, value)| (index as f64, *value));
            chart
                .draw_series(LineSeries::new(points(), colour))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).border_style(BLACK).draw()?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiset::Lines;

    #[test]
    fn a_place_gets_its_rows_in_so_many_files() {
        let folder = std::env::temp_dir().join(format!("tidegate-scaling-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let lines: Vec<String> = (0..10).map(|row| row.to_string()).collect();
        write_input(&lines, &folder, Place { partitions: 4, subtasks: 1, tenths: 25 }).expect("it can be written");
        let mut all = Lines::default();
        let files: Vec<PathBuf> =
            std::fs::read_dir(&folder).expect("listed").map(|entry| entry.expect("an entry").path()).collect();
        for file in &files {
            all.add_all(std::fs::File::open(file).expect("it is there")).expect("it can be read");
        }
        assert_eq!((files.len(), all.total()), (4, 25));
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn the_plot_is_drawn_with_its_labels() {
        let path = std::env::temp_dir().join(format!("tidegate-plot-{}.svg", std::process::id()));
        let at = vec!["12".to_owned(), "1000".to_owned()];
        draw(&path, &[Panel { title: "files".to_owned(), at, cpu: vec![400.0, 500.0], wall: vec![300.0, 350.0] }])
            .expect("it can be drawn");
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert!(text.contains("1000") && text.contains("files") && text.contains("wall clock"), "{text}");
        std::fs::remove_file(path).expect("it can be removed");
    }
}
