//! Charts as SVG that lies in the page, in the page's own colours.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::costs::{Costs, Point};
use crate::command::failure::Failure;
use crate::command::output::tick;

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const SIZE: (u32, u32) = (560, 260);
/// The page's style gives every black its own colour, and these to marks.
const MARK: RGBColor = RGBColor(0, 114, 178);
const OTHER: RGBColor = RGBColor(213, 94, 0);

fn drawn(
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>>,
) -> Result<String, Failure> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let result = draw(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    result.map_err(|error| Failure::new(format!("cannot draw a chart: {error}")))?;
    Ok(text)
}

/// A chart from 0 on, with room for its labels.
fn framed<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, right: f64, top: f64) -> Result<Chart<'a>, Box<dyn Error>> {
    Ok(ChartBuilder::on(area)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, 0.0..top)?)
}

/// Passes over memory, with today's budget and the knee marked.
pub(super) fn curve(costs: &Costs, decoded: u64) -> Result<String, Failure> {
    let most = costs.curve.iter().map(|point| point.passes).fold(1.0, f64::max);
    let share = |point: &Point| (point.memory as f64 / decoded.max(1) as f64).min(1.0) * 100.0;
    drawn(|area| {
        let mut chart = framed(area, 102.0, most * 1.08)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .x_labels(6)
            .y_labels(6)
            .x_desc("memory, as a share of the decoded bytes")
            .y_desc("passes an epoch");
        mesh.x_label_formatter(&|share| format!("{share:.0} %")).y_label_formatter(&|passes| tick(*passes)).draw()?;
        let points = costs.curve.iter().map(|point| (share(point), point.passes));
        chart.draw_series([PathElement::new(points.clone().collect::<Vec<_>>(), MARK.stroke_width(2))])?;
        chart.draw_series(points.map(|place| Circle::new(place, 3, MARK.filled())))?;
        if let Some(knee) = &costs.knee {
            chart.draw_series([Circle::new((share(knee), knee.passes), 8, MARK.stroke_width(2))])?;
        }
        let here = costs.here.iter().map(|here| (share(here), here.passes.min(most * 1.08)));
        chart.draw_series(here.map(|place| TriangleMarker::new(place, 9, OTHER.filled())))?;
        Ok(())
    })
}
