//! Line plots as SVG, for the documentation and for people who compare runs.

use crate::failure::Failure;
use crate::report::Report;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";

/// Line colours that can be distinguished on white, also by people with red-green colour blindness.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(0, 140, 90),
    RGBColor(150, 90, 190),
    RGBColor(230, 145, 0),
    RGBColor(70, 70, 70),
    RGBColor(90, 180, 229),
    RGBColor(150, 110, 60),
];

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear, starting at zero.
    Linear,
    /// Logarithmic.
    Log,
    /// Quantiles: each step is ten times closer to 1.
    Quantile,
}

/// A labelled series of points, ordered from left to right.
#[derive(Debug, Clone)]
pub struct Line {
    /// Label in the legend.
    pub label: String,
    /// Points as (x, y); x is from 0 to 1 on a quantile scale.
    pub points: Vec<(f64, f64)>,
}

/// A line plot.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Title above the plot.
    pub title: String,
    /// Axis labels: below the x axis and beside the y axis.
    pub labels: (String, String),
    /// Scales of the x axis and the y axis.
    pub scales: (Scale, Scale),
    /// Lines of the plot.
    pub lines: Vec<Line>,
}

impl Chart {
    /// Writes the plot to a file, as SVG.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::says(format!("can't plot {}: {error}", path.display()));
        let text = self.svg().map_err(|error| failed(&error))?;
        std::fs::write(path, text).map_err(|error| failed(&error))
    }

    /// Renders the plot as SVG text.
    pub fn svg(&self) -> Result<String, Failure> {
        let mut text = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            self.draw(&area)
        };
        drawn.map_err(|error| Failure::says(error.to_string()))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Chart::range(self.scales.0, points().map(|point| place(self.scales.0, point.0)));
        let y = Chart::range(self.scales.1, points().map(|point| point.1));
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, (FONT, 20)).margin(16).x_label_area_size(50).y_label_area_size(84);
        match (self.scales.0, self.scales.1) {
            (Scale::Linear, Scale::Linear) => self.fill_in(builder.build_cartesian_2d(x, y)?),
            (Scale::Linear, _) => self.fill_in(builder.build_cartesian_2d(x, y.log_scale())?),
            (_, Scale::Linear) => self.fill_in(builder.build_cartesian_2d(x.log_scale(), y)?),
            (_, _) => self.fill_in(builder.build_cartesian_2d(x.log_scale(), y.log_scale())?),
        }?;
        area.present()
    }

    fn fill_in<'a, 'b: 'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    ) -> Drawn
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let (x_scale, _) = self.scales;
        chart
            .configure_mesh()
            .x_desc(&self.labels.0)
            .y_desc(&self.labels.1)
            .axis_desc_style((FONT, 15))
            .label_style((FONT, 13))
            .light_line_style(WHITE)
            .x_label_formatter(&|x| mark(x_scale, *x))
            .y_label_formatter(&|y| mark(Scale::Linear, *y))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle().copied()) {
            let points: Vec<(f64, f64)> =
                line.points.iter().map(|(x, y)| (place(x_scale, *x), *y)).filter(|(_, y)| *y > 0.0).collect();
            let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(3));
            let drawn = chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            drawn.label(line.label.as_str()).legend(legend);
            // A line of few points was measured point by point, so each point gets a circle.
            if points.len() <= 12 {
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .label_font((FONT, 14))
            .draw()
    }

    /// Returns an axis range that holds all finite positive values; a valid range even if there are none.
    fn range(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let max = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        let max = if max > f64::MIN_POSITIVE { max } else { 1.0 };
        let min = values.fold(max, f64::min);
        match scale {
            Scale::Linear => 0.0..max * 1.1,
            Scale::Quantile => 1.0..max.max(10.0),
            Scale::Log => min * 0.8..max * 1.5,
        }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// Returns the axis position of a value. Quantile q is placed at 1/(1-q): one value in that many is above the quantile.
fn place(scale: Scale, value: f64) -> f64 {
    if scale == Scale::Quantile { 1.0 / (1.0 - value.min(0.999_999)) } else { value }
}

/// Formats the tick label at an axis position.
fn mark(scale: Scale, value: f64) -> String {
    if scale == Scale::Quantile {
        let percent = 100.0 - 100.0 / value;
        return format!("{}%", (percent * 1e4).round() / 1e4);
    }
    match value {
        value if value >= 1e6 => format!("{}M", (value / 1e4).round() / 100.0),
        value if value >= 1e3 => format!("{}k", (value / 10.0).round() / 100.0),
        value => format!("{}", (value * 1e3).round() / 1e3),
    }
}

/// Builds a plot of latency by percentile, with one line for each run.
pub fn latency_chart(title: &str, reports: &[Report]) -> Chart {
    let line = |report: &Report| {
        let series = report.series.first()?;
        let point = |(quantile, took): (f64, std::time::Duration)| (quantile, took.as_secs_f64() * 1e3);
        let label = format!("{} clients, {}", report.plan.clients, series.of);
        Some(Line { label, points: series.latency.curve().into_iter().map(point).collect() })
    };
    Chart {
        title: title.to_owned(),
        labels: ("percentile".to_owned(), "milliseconds".to_owned()),
        scales: (Scale::Quantile, Scale::Log),
        lines: reports.iter().filter_map(line).collect(),
    }
}

/// Builds a plot of throughput by number of clients, with one point for each run.
#[allow(clippy::cast_precision_loss, reason = "a plot has no more digits")]
pub fn throughput_chart(title: &str, reports: &[Report]) -> Chart {
    let points = reports.iter().map(|report| (report.plan.clients as f64, report.per_second())).collect();
    let counts = reports.first().map_or("operations", |report| report.plan.workload.operations());
    Chart {
        title: title.to_owned(),
        labels: ("clients".to_owned(), format!("{counts} per second")),
        scales: (Scale::Log, Scale::Linear),
        lines: vec![Line { label: counts.to_owned(), points }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use crate::plan::Plan;
    use crate::report::Series;
    use crate::workload::Workload;
    use std::time::Duration;

    fn report(clients: usize, operations: u64) -> Report {
        let mut latency = Latency::new();
        (1..=operations).for_each(|number| latency.record(Duration::from_micros(number)));
        Report {
            plan: Plan::new(Workload::Uncontended, clients),
            measured: Duration::from_secs(1),
            series: vec![Series { of: "pair", latency }],
            failures: 0,
            first_failure: None,
            spent: None,
        }
    }

    #[test]
    fn plots_are_svg_with_what_they_show() {
        let reports = [report(1, 1_000), report(64, 20_000)];
        let latency = latency_chart("How long", &reports).svg().unwrap();
        let throughput = throughput_chart("How many", &reports).svg().unwrap();
        for (svg, says) in [
            (&latency, "64 clients, pair"),
            (&latency, "99.9%"),
            (&throughput, "20k"),
            (&throughput, "How many"),
        ] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
            assert!(svg.contains(says), "{says} is not in {svg}");
        }
    }

    #[test]
    fn a_plot_of_nothing_is_a_plot() {
        for reports in [vec![], vec![report(1, 0)], vec![report(1, 1)]] {
            latency_chart("none", &reports).svg().unwrap();
            throughput_chart("none", &reports).svg().unwrap();
        }
    }
}
