//! `rowdex estimate --pack`: what packs come to, before training.

use indicatif::HumanCount;
use rowdex::Index;
use rowdex::order::Algorithm;
use rowdex::sampler::{PackForecast, PackSpec};
use serde_json::{Value, json};

use crate::command::failure::Failure;
use crate::command::lengths;

const BARS: u64 = 48;
/// The picture's width and the height of each of its two charts, in pixels, of which the rest are around the bars.
const WIDTH: u64 = 560;
const CHART: u64 = 330;
const LEFT: u64 = 96;
const RIGHT: u64 = 32;
const ABOVE: u64 = 56;
const BELOW: u64 = 40;
const BLUE: &str = "#4269d0";
const INK: &str = "#24292f";

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

/// The lengths of rows, and how full packs are, as SVG in the style of the documentation's pictures.
pub(crate) fn plot(pack: &PackSpec, forecast: &PackForecast, index: &Index) -> Result<String, Failure> {
    let lengths = lengths::sampled(index, &pack.lengths)?;
    let packs = &forecast.pack_tokens;
    let capacity = if pack.pack.algorithm == Algorithm::Buckets { most(packs) } else { pack.pack.capacity };
    let above = bars(&lengths, most(&lengths), "Length of rows, in tokens", 0);
    let below = bars(packs, capacity, "Fill of packs, in tokens", CHART);
    let height = 2 * CHART;
    Ok(format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
 font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="16" fill="{INK}">
<title>Lengths of rows, and fill of packs</title>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>
{above}{below}</svg>
"##
    ))
}

/// The largest of them, or 1.
fn most(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0).max(1)
}

/// How many values lie in each part of the range up to `end`, as a chart whose upper edge is at `top`.
fn bars(values: &[u64], end: u64, title: &str, top: u64) -> String {
    let part = end.div_ceil(BARS).max(1);
    let mut counts = vec![0_u64; (end / part + 1) as usize];
    for value in values {
        if let Some(count) = counts.get_mut(((*value).min(end) / part) as usize) {
            *count += 1;
        }
    }
    let range = part.saturating_mul(counts.len() as u64);
    let tallest = most(&counts);
    let across = |value: u64| LEFT as f64 + value as f64 / range as f64 * (WIDTH - LEFT - RIGHT) as f64;
    let floor = (top + CHART - BELOW) as f64;
    let up = |count: u64| count as f64 / tallest as f64 * (CHART - ABOVE - BELOW) as f64;
    let mut drawn = format!("<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>\n", top + 32);
    for (start, count) in (0..).step_by(part as usize).zip(&counts) {
        let (left, height) = (across(start), up(*count));
        let width = across(start + part) - left;
        let y = floor - height;
        drawn += &format!("<path d=\"M{left:.1} {y:.1} h{width:.1} v{height:.1} h-{width:.1} z\" fill=\"{BLUE}\"/>\n");
    }
    for value in marks(range) {
        let x = across(value);
        let y = floor + 22.0;
        drawn += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>\n", HumanCount(value));
    }
    for value in marks(tallest) {
        let y = floor - up(value) + 6.0;
        let x = LEFT - 8;
        drawn += &format!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>\n", HumanCount(value));
    }
    drawn + &format!("<path d=\"M{LEFT} {floor} H{}\" stroke=\"{INK}\"/>\n", WIDTH - RIGHT)
}

/// Round numbers from 0 to `end`, three to six of them where there are so many.
fn marks(end: u64) -> impl Iterator<Item = u64> {
    let steps = (0..20).flat_map(|power| [1, 2, 5].map(|step| 10_u64.saturating_pow(power).saturating_mul(step)));
    let step = steps.into_iter().find(|step| end / step <= 5).unwrap_or(u64::MAX);
    (0..=end / step).map(move |number| number * step)
}
