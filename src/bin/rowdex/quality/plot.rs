//! A picture of each order: where rows go, and what batches are made of.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use rowdex::order::quality::window;

use super::Measured;
use super::labels::Labels;
use crate::failure::Failure;

const WIDTH: u32 = 440;
const HEIGHT: u32 = 420;
const KEY: u32 = 44;

/// Positions shown as points, and batches shown as bars.
const POINTS: u64 = 2500;
const BARS: u64 = 60;

/// Colours that people with any colour vision tell apart (M. Okabe, K. Ito: Color universal design, 2008), and greys.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(240, 228, 66),
    RGBColor(60, 60, 60),
    RGBColor(190, 190, 190),
];

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The classes of the bars: the most frequent labels and the others together, or parts of the rows in equal windows.
struct Classes<'a> {
    labels: Option<(&'a [u32], Vec<usize>)>,
    rows: u64,
    names: Vec<String>,
}

/// The picture as SVG: a column for each order, points above bars, and a key below.
pub(super) fn draw(
    measured: &[Measured],
    rows: u64,
    labels: Option<&Labels>,
    column: Option<&str>,
) -> Result<String, Failure> {
    let classes = Classes::new(rows, labels);
    let mut text = String::new();
    let size = (WIDTH * measured.len().max(1) as u32, 2 * HEIGHT + KEY);
    let all = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let drawn = (|| -> Result<(), Box<dyn Error>> {
        all.fill(&WHITE)?;
        let (panels, key) = all.split_vertically(2 * HEIGHT);
        let (above, below) = panels.split_vertically(HEIGHT);
        let grid = (1, measured.len().max(1));
        let areas = above.split_evenly(grid).into_iter().zip(below.split_evenly(grid));
        for (measured, (above, below)) in measured.iter().zip(areas) {
            points(measured, rows, &above)?;
            bars(measured, &classes, &below)?;
        }
        classes.key(column, &key)?;
        all.present()?;
        Ok(())
    })();
    drop(all);
    drawn.map_err(|error| Failure::new(format!("cannot draw the picture: {error}")))?;
    Ok(text)
}

/// The row at each of some positions, evenly spread.
fn points(measured: &Measured, rows: u64, area: &Drawing<'_>) -> Result<(), Box<dyn Error>> {
    let len = measured.order.len();
    let mut chart = ChartBuilder::on(area)
        .caption(&measured.name, ("sans-serif", 20))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..len.max(1) as f64, 0.0..rows.max(1) as f64)?;
    chart.configure_mesh().disable_mesh().x_desc("position").y_desc("row").x_labels(4).y_labels(5).draw()?;
    let stride = len.div_ceil(POINTS).max(1);
    let mut served = vec![0; usize::try_from(len.min(POINTS))?];
    let count = measured.order.fill_strided(0, stride, &mut served);
    let place = |(position, row): (u64, &u64)| Circle::new((position as f64, *row as f64), 1, COLOURS[0].filled());
    chart.draw_series((0..).map(|i| i * stride).zip(served.iter().take(count)).map(place))?;
    Ok(())
}

/// The shares of the classes in each of some batches, evenly spread.
fn bars(measured: &Measured, classes: &Classes<'_>, area: &Drawing<'_>) -> Result<(), Box<dyn Error>> {
    let (batches, size) = (measured.quality.batches, measured.quality.batch_size);
    let shown = batches.min(BARS);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..batches.max(1) as f64, 0.0..1.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_desc("batch").y_desc("share of the batch").x_labels(4).y_labels(5).draw()?;
    let mut rows = vec![0; usize::try_from(size)?];
    let width = batches as f64 / shown.max(1) as f64;
    for bar in 0..shown {
        let batch = (u128::from(bar) * u128::from(batches) / u128::from(shown)) as u64;
        let count = measured.order.fill(batch * size, &mut rows);
        let mut counts = vec![0_u64; classes.names.len()];
        for class in rows.iter().take(count).filter_map(|row| classes.of(*row)) {
            counts[class] += 1;
        }
        let mut bottom = 0.0;
        for (count, colour) in counts.iter().zip(COLOURS) {
            let top = bottom + *count as f64 / size as f64;
            let (left, right) = (bar as f64 * width, (bar as f64 + 1.0) * width);
            if *count > 0 {
                chart.draw_series([Rectangle::new([(left, bottom), (right, top)], colour.filled())])?;
            }
            bottom = top;
        }
    }
    Ok(())
}

impl<'a> Classes<'a> {
    fn new(rows: u64, labels: Option<&'a Labels>) -> Self {
        let Some(labels) = labels else {
            let parts = COLOURS.len() - 1;
            let names = (1..=parts).map(|part| format!("{part}/{parts}")).collect();
            return Self { labels: None, rows, names };
        };
        let mut counts = vec![0_u64; labels.names.len()];
        labels.codes.iter().for_each(|code| counts[*code as usize] += 1);
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|code| std::cmp::Reverse(counts[*code]));
        let named = if order.len() > COLOURS.len() { COLOURS.len() - 1 } else { order.len() };
        let mut names: Vec<String> = order.iter().take(named).map(|code| short(&labels.names[*code])).collect();
        if named < order.len() {
            names.push("others".to_owned());
        }
        let mut class = vec![named; order.len()];
        order.iter().take(named).enumerate().for_each(|(at, code)| class[*code] = at);
        Self { labels: Some((&labels.codes, class)), rows, names }
    }

    fn of(&self, row: u64) -> Option<usize> {
        match &self.labels {
            None => Some(window(row, self.rows, self.names.len())).filter(|part| *part < self.names.len()),
            Some((codes, class)) => class.get(*codes.get(usize::try_from(row).ok()?)? as usize).copied(),
        }
    }

    /// What the colours stand for.
    fn key(&self, column: Option<&str>, area: &Drawing<'_>) -> Result<(), Box<dyn Error>> {
        let style = ("sans-serif", 14).into_font();
        let title = column.map_or("rows, by their place in the index".to_owned(), short);
        area.draw(&Text::new(title, (16, 2), style.clone()))?;
        let width = area.dim_in_pixel().0.saturating_sub(32) as i32 / self.names.len().max(1) as i32;
        for (at, (name, colour)) in self.names.iter().zip(COLOURS).enumerate() {
            let left = 16 + at as i32 * width;
            area.draw(&Rectangle::new([(left, 24), (left + 10, 34)], colour.filled()))?;
            area.draw(&Text::new(name.clone(), (left + 14, 22), style.clone()))?;
        }
        Ok(())
    }
}

/// A name that has room below the bars.
fn short(name: &str) -> String {
    const ROOM: usize = 10;
    match name.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
