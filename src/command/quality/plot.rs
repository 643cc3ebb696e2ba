//! A picture of each order: where rows go, and what batches are made of.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use rowdex::order::quality::window;

use super::Measured;
use super::labels::Labels;
use crate::command::failure::Failure;
use crate::command::output::tick;

const WIDTH: u32 = 440;
const HEIGHT: u32 = 420;
/// The title of the key, and each line of it.
const KEY_TITLE: u32 = 24;
const KEY_LINE: u32 = 20;
/// Between the left edge and the key.
const KEY_MARGIN: i32 = 16;
/// For the last number below an axis, which is centred at the end of the axis.
const RIGHT: u32 = 28;

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
    let width = WIDTH * measured.len().max(1) as u32;
    let lines = classes.key_lines(width);
    let size = (width, 2 * HEIGHT + KEY_TITLE + KEY_LINE * lines.len() as u32);
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
        classes.key(column, &lines, &key)?;
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
        .margin_right(RIGHT)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..len.max(1) as f64, 0.0..rows.max(1) as f64)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_desc("position").y_desc("row").x_labels(4).y_labels(5);
    mesh.x_label_formatter(&|position| tick(*position)).y_label_formatter(&|row| tick(*row)).draw()?;
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
        .margin_right(RIGHT)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..batches.max(1) as f64, 0.0..1.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_desc("batch").y_desc("share of the batch").x_labels(4).y_labels(5);
    mesh.x_label_formatter(&|batch| tick(*batch))
        .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .draw()?;
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
        tell_apart(&mut names);
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

    /// Which classes are on which line of the key, and where each begins.
    fn key_lines(&self, width: u32) -> Vec<Vec<(usize, i32)>> {
        let mut lines = vec![Vec::new()];
        let mut left = KEY_MARGIN;
        for (at, name) in self.names.iter().enumerate() {
            // The square, the name at about 8 pixels a letter, and a gap.
            let needed = 14 + 8 * name.chars().count() as i32 + 16;
            if left > KEY_MARGIN && left + needed > width as i32 {
                lines.push(Vec::new());
                left = KEY_MARGIN;
            }
            if let Some(line) = lines.last_mut() {
                line.push((at, left));
            }
            left += needed;
        }
        lines
    }

    /// What the colours stand for.
    fn key(&self, column: Option<&str>, lines: &[Vec<(usize, i32)>], area: &Drawing<'_>) -> Result<(), Box<dyn Error>> {
        let style = ("sans-serif", 14).into_font();
        let title = column.map_or("rows, by their place in the index".to_owned(), short);
        area.draw(&Text::new(title, (KEY_MARGIN, 2), style.clone()))?;
        for (line, places) in lines.iter().enumerate() {
            let top = (KEY_TITLE + KEY_LINE * line as u32) as i32;
            for &(at, left) in places {
                let (Some(name), Some(colour)) = (self.names.get(at), COLOURS.get(at)) else { continue };
                area.draw(&Rectangle::new([(left, top), (left + 10, top + 10)], colour.filled()))?;
                area.draw(&Text::new(name.clone(), (left + 14, top - 2), style.clone()))?;
            }
        }
        Ok(())
    }
}

/// A name that has room in the key: of a long one the beginning and the end.
fn short(name: &str) -> String {
    const ROOM: usize = 32;
    let count = name.chars().count();
    if count <= ROOM {
        return name.to_owned();
    }
    let half = (ROOM - 1) / 2;
    let (begin, end) = (name.chars().take(half), name.chars().skip(count - half));
    begin.chain(['…']).chain(end).collect()
}

/// Numbers names that were shortened to the same one.
fn tell_apart(names: &mut [String]) {
    for at in 0..names.len() {
        let (before, from) = names.split_at_mut(at);
        let Some(name) = from.first_mut() else { continue };
        let same = before.iter().filter(|other| other.strip_prefix(name.as_str()).is_some_and(is_number)).count();
        if same > 0 {
            *name = format!("{name} ({})", same + 1);
        }
    }
}

/// What [`tell_apart`] appends, or nothing.
fn is_number(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(" (") && rest.ends_with(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_alike_stay_different() {
        let long = |end: &str| format!("{}{end}", "a common beginning of a name, ".repeat(3));
        let mut names =
            [long("one"), long("two"), format!("{}x{}", long("three"), long("three"))].map(|name| short(&name));
        assert!(names[0].ends_with("one") && names[1].ends_with("two"));
        assert!(names.iter().all(|name| name.chars().count() <= 32));
        tell_apart(&mut names);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        let mut same = ["a", "b", "a", "a"].map(str::to_owned);
        tell_apart(&mut same);
        assert_eq!(same, ["a", "b", "a (2)", "a (3)"]);
        assert_eq!(short("déjà vu"), "déjà vu");
    }

    #[test]
    fn the_key_takes_as_many_lines_as_its_names_need() {
        let names: Vec<String> = (0..9).map(|at| format!("a rather long name, number {at}")).collect();
        let classes = Classes { labels: None, rows: 9, names };
        let lines = classes.key_lines(WIDTH);
        assert!(lines.len() > 4 && lines.iter().flatten().map(|(at, _)| *at).eq(0..9));
        assert_eq!(Classes { labels: None, rows: 9, names: vec!["a".into(), "b".into()] }.key_lines(WIDTH).len(), 1);
    }
}
