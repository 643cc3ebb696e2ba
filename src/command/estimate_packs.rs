//! `rowdex estimate --pack`: what packs come to, before training.

use std::error::Error;

use indicatif::HumanCount;
use plotters::coord::Shift;
use plotters::prelude::*;
use rowdex::Index;
use rowdex::order::Algorithm;
use rowdex::sampler::{PackForecast, PackSpec};
use serde_json::{Value, json};

use crate::command::failure::Failure;
use crate::command::lengths;

const BARS: u64 = 48;
const SIZE: (u32, u32) = (1120, 420);

/// What is reported of the packs of an epoch.
pub(crate) fn told(pack: &PackSpec, forecast: &PackForecast) -> Value {
    let counts = &forecast.counts;
    json!({
        "pack": pack.to_string(),
        "packs": forecast.packs,
        "opened": forecast.opened,
        "pieces": counts.pieces,
        "pieces_a_pack": forecast.pieces_a_pack(),
        "fill": forecast.fill,
        "tokens": forecast.tokens(),
        "tokens_truncated": counts.tokens_truncated,
        "tokens_dropped": counts.tokens_dropped,
        "tokens_left_out": forecast.tokens_left_out,
        "tokens_repeated": forecast.tokens_repeated,
        "rows_split": counts.rows_split,
        "rows_truncated": counts.rows_truncated,
        "rows_dropped": counts.rows_dropped,
        "rows_empty": counts.rows_empty,
        "cost_imbalance": forecast.imbalance,
        "steps_looked_at": forecast.steps_looked_at,
    })
}

/// The lengths of rows, and how full packs are, as SVG.
pub(crate) fn plot(pack: &PackSpec, forecast: &PackForecast, index: &Index) -> Result<String, Failure> {
    let lengths = lengths::sampled(index, &pack.lengths)?;
    let packs = &forecast.pack_tokens;
    let capacity = if pack.pack.algorithm == Algorithm::Buckets { most(packs) } else { pack.pack.capacity };
    let mut text = String::new();
    let all = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let drawn = (|| -> Result<(), Box<dyn Error>> {
        all.fill(&WHITE)?;
        let (left, right) = all.split_horizontally(SIZE.0 / 2);
        bars(&lengths, most(&lengths), "length of rows, in tokens", &left)?;
        bars(packs, capacity, "fill of packs, in tokens", &right)?;
        all.present()?;
        Ok(())
    })();
    drop(all);
    drawn.map_err(|error| Failure::new(format!("cannot draw the picture: {error}")))?;
    Ok(text)
}

/// The largest of them, or 1.
fn most(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0).max(1)
}

/// How many values lie in each part of the range up to `most`.
fn bars(
    values: &[u64],
    end: u64,
    title: &str,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let width = end.div_ceil(BARS).max(1);
    let mut counts = vec![0_u64; usize::try_from(end / width + 1)?];
    for value in values {
        if let Some(count) = counts.get_mut(usize::try_from((*value).min(end) / width)?) {
            *count += 1;
        }
    }
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0..counts.len() as u64 * width, 0..most(&counts))?;
    let grouped = |number: &u64| HumanCount(*number).to_string();
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_labels(5).y_labels(5).x_label_formatter(&grouped).y_label_formatter(&grouped).draw()?;
    let bar = |(left, count)| Rectangle::new([(left, 0), (left + width, count)], BLUE.filled());
    chart.draw_series((0..).step_by(width as usize).zip(counts).map(bar))?;
    Ok(())
}
