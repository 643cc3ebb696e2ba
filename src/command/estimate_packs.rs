//! `rowdex estimate --pack`: what packs come to, before training.

use std::error::Error;
use std::time::Instant;

use indicatif::{HumanBytes, HumanCount};
use plotters::coord::Shift;
use plotters::prelude::*;
use rowdex::order::{Algorithm, Empty, PackCounts};
use rowdex::sampler::{PackForecast, PackSpec};
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::estimate_line::Line;
use crate::command::failure::Failure;
use crate::command::output;
use crate::command::sampling::{BatchArg, SamplingArgs};

/// Rows whose lengths are in the picture.
const ROWS: u64 = 1 << 20;

const BARS: u64 = 48;
const WIDTH: u32 = 560;
const HEIGHT: u32 = 420;
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(230, 159, 0);

/// What is told of the packs of a run.
pub(crate) struct PackReport {
    pack: PackSpec,
    order: String,
    rows: u64,
    world_size: u32,
    batch_size: usize,
    epoch: u64,
    epochs: u64,
    total_steps: u64,
    forecast: PackForecast,
    seconds: f64,
    /// What a loader reads, or why there can be none.
    reading: Result<Line, String>,
}

impl PackReport {
    pub(crate) fn new(
        pack: &PackSpec,
        sampling: &SamplingArgs,
        batch: BatchArg,
        index: &Index,
        dataset: impl FnOnce() -> Result<Dataset, Failure>,
        reading: impl FnOnce() -> Result<Line, Failure>,
    ) -> Result<Self, Failure> {
        let chosen = sampling.choose_from(index, dataset)?;
        let sampler = sampling.sampler(&chosen, 0, batch.batch_size)?;
        let started = Instant::now();
        sampler.plan(sampling.epoch)?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Self {
            pack: pack.clone(),
            order: chosen.name,
            rows: chosen.rows,
            world_size: sampling.world_size,
            batch_size: batch.batch_size,
            epoch: sampling.epoch,
            epochs: sampling.epochs,
            total_steps: sampler.total_steps(sampling.epochs)?,
            forecast: sampler.forecast(sampling.epoch, PackForecast::STEPS)?,
            seconds,
            // Behind the planning, which it would find done.
            reading: match reading() {
                Err(Failure::Said(reason)) => Err(reason),
                other => Ok(other?),
            },
        })
    }

    fn has_buckets(&self) -> bool {
        self.pack.pack.algorithm == Algorithm::Buckets
    }

    fn packs(&self) -> String {
        let PackForecast { packs, opened, .. } = self.forecast;
        let number = |number: u64| HumanCount(number).to_string();
        if self.has_buckets() {
            let within = number(self.pack.pack.block);
            return format!("{} of rows with like lengths within {within} positions", number(packs));
        }
        let opened = if opened > 0 { format!(", {} of them opened", number(opened)) } else { String::new() };
        format!("{} of {} tokens{opened}", number(packs), number(self.pack.pack.capacity))
    }

    /// Tokens that are not served, by cause, and rows without any that are left out.
    fn lost(&self) -> String {
        let forecast = &self.forecast;
        let PackCounts { tokens_truncated, tokens_dropped, rows_truncated, rows_dropped, rows_empty, .. } =
            forecast.counts;
        let number = |number: u64| HumanCount(number).to_string();
        let mut causes = Vec::new();
        if tokens_truncated > 0 {
            causes.push(format!(
                "{} tokens truncated of {}",
                number(tokens_truncated),
                output::counted(rows_truncated, "row")
            ));
        }
        if tokens_dropped > 0 {
            causes.push(format!("{} dropped with {}", number(tokens_dropped), output::counted(rows_dropped, "row")));
        }
        if forecast.tokens_left_out > 0 {
            causes.push(format!("{} left out by the tail", number(forecast.tokens_left_out)));
        }
        if forecast.tokens_repeated > 0 {
            causes.push(format!("none, {} come twice", number(forecast.tokens_repeated)));
        }
        if rows_empty > 0 && self.pack.pack.empty == Empty::Skip {
            causes.push(format!("{} without tokens", output::counted(rows_empty, "row")));
        }
        if causes.is_empty() { "nothing".to_owned() } else { causes.join("; ") }
    }

    fn read(&self) -> String {
        match &self.reading {
            Err(reason) => format!("nothing: {reason}"),
            Ok(Line { memory, told }) => format!(
                "{} in {:.2} passes an epoch with {} of memory; {:.2} in the first",
                HumanBytes(told.bytes_read),
                told.passes,
                HumanBytes(*memory),
                told.first_passes,
            ),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let PackForecast { counts, .. } = &self.forecast;
        json!({
            "pack": self.pack.to_string(),
            "order": self.order,
            "rows": self.rows,
            "world_size": self.world_size,
            "batch_size": self.batch_size,
            "epoch": self.epoch,
            "epochs": self.epochs,
            "steps": self.forecast.steps,
            "total_steps": self.total_steps,
            "packs": self.forecast.packs,
            "opened": self.forecast.opened,
            "pieces": counts.pieces,
            "pieces_a_pack": self.forecast.pieces_a_pack(),
            "fill": self.forecast.fill,
            "tokens": self.forecast.tokens(),
            "tokens_truncated": counts.tokens_truncated,
            "tokens_dropped": counts.tokens_dropped,
            "tokens_left_out": self.forecast.tokens_left_out,
            "tokens_repeated": self.forecast.tokens_repeated,
            "rows_split": counts.rows_split,
            "rows_truncated": counts.rows_truncated,
            "rows_dropped": counts.rows_dropped,
            "rows_empty": counts.rows_empty,
            "cost_imbalance": self.forecast.imbalance,
            "steps_looked_at": self.forecast.steps_looked_at,
            "seconds_to_plan": self.seconds,
            "loader": self.reading.as_ref().ok().map(Line::to_json),
            "loader_error": self.reading.as_ref().err(),
        })
    }

    pub(crate) fn to_text(&self) -> String {
        let PackForecast { steps, counts, fill, imbalance, .. } = &self.forecast;
        let number = |number: u64| HumanCount(number).to_string();
        let (unit, of_unit) = match self.has_buckets() {
            true => ("row", "of batches that are padded to their longest row".to_owned()),
            false => ("pack", format!("{:.1} pieces a pack", self.forecast.pieces_a_pack())),
        };
        let epoch = match self.epochs {
            1 => String::new(),
            epochs => format!("; {} in {epochs} epochs", number(self.total_steps)),
        };
        let lines = [
            (if self.has_buckets() { "buckets" } else { "packs" }, self.packs()),
            (
                "steps",
                format!(
                    "{} of {} for {}{epoch}",
                    number(*steps),
                    output::counted(self.batch_size as u64, unit),
                    output::counted(self.world_size.into(), "rank"),
                ),
            ),
            ("fill", format!("{:.3} %, {of_unit}", fill * 100.0)),
            ("tokens", number(self.forecast.tokens())),
            ("lost", self.lost()),
            ("rows split", number(counts.rows_split)),
            ("cost", format!("the slowest rank has {:.3} times the mean", imbalance)),
            ("planned in", format!("{:.3} s", self.seconds)),
            ("reads", self.read()),
        ];
        let head = format!(
            "{} by {}; order {}, epoch {}\n\n",
            output::counted(self.rows, "row"),
            self.pack.lengths,
            self.order,
            self.epoch
        );
        lines.into_iter().fold(head, |text, (name, value)| text + &format!("{name:<10}  {value}\n"))
    }

    /// The lengths of rows, and how full packs are, as SVG.
    pub(crate) fn plot(&self, index: &Index) -> Result<String, Failure> {
        let lengths = sampled_lengths(index, &self.pack.lengths)?;
        let mut text = String::new();
        let all = SVGBackend::with_string(&mut text, (2 * WIDTH, HEIGHT)).into_drawing_area();
        let capacity = self.pack.pack.capacity;
        let drawn = (|| -> Result<(), Box<dyn Error>> {
            all.fill(&WHITE)?;
            let (left, right) = all.split_horizontally(WIDTH);
            let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
            bars(&lengths, longest, "length of rows", "tokens", "rows", BLUE, &left)?;
            let packs = &self.forecast.pack_tokens;
            let most = packs.iter().copied().max().unwrap_or(0).max(1);
            let capacity = if self.has_buckets() { most } else { capacity };
            bars(packs, capacity, "fill of packs", "tokens", "packs", ORANGE, &right)?;
            all.present()?;
            Ok(())
        })();
        drop(all);
        drawn.map_err(|error| Failure::new(format!("cannot draw the picture: {error}")))?;
        Ok(text)
    }
}

/// The lengths of rows, evenly spread.
fn sampled_lengths(index: &Index, name: &str) -> Result<Vec<u64>, Failure> {
    let lengths = index.lengths(name)?;
    let stride = usize::try_from(index.len().div_ceil(ROWS).max(1)).unwrap_or(usize::MAX);
    let rows: Vec<u64> = (0..index.len()).step_by(stride).collect();
    let mut found = vec![0; rows.len()];
    rowdex::order::Lengths::fill(&lengths, &rows, &mut found)?;
    Ok(found)
}

/// How many values lie in each part of the range up to `most`.
fn bars(
    values: &[u64],
    most: u64,
    title: &str,
    across: &str,
    up: &str,
    colour: RGBColor,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let width = most.div_ceil(BARS).max(1);
    let mut counts = vec![0_u64; usize::try_from(most / width + 1)?];
    for value in values {
        let bar = usize::try_from((*value).min(most) / width)?;
        if let Some(count) = counts.get_mut(bar) {
            *count += 1;
        }
    }
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(8)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..(counts.len() as u64 * width) as f64, 0.0..highest as f64)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_desc(across).y_desc(up).x_labels(5).y_labels(5);
    let whole = |number: &f64| HumanCount(number.round() as u64).to_string();
    mesh.x_label_formatter(&whole).y_label_formatter(&whole).draw()?;
    let bar = |(number, count): (u64, &u64)| {
        let left = (number * width) as f64;
        let right = ((number + 1) * width) as f64;
        Rectangle::new([(left, 0.0), (right, *count as f64)], colour.filled())
    };
    chart.draw_series((0..).zip(&counts).map(bar))?;
    Ok(())
}
