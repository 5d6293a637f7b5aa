//! Bars in panels, as SVG.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    pub(crate) shade: Shade,
}

/// What a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shade {
    /// Weir's own.
    Own,
    /// Another server's.
    Other,
    /// A floor, or a figure from elsewhere: for comparison.
    Floor,
}

impl Shade {
    fn color(self) -> RGBColor {
        match self {
            Shade::Own => RGBColor(0xd9, 0x4a, 0x1e),
            Shade::Other => RGBColor(0x3b, 0x6e, 0x9e),
            Shade::Floor => RGBColor(0xa8, 0xae, 0xb4),
        }
    }
}

/// Bars that are compared with each other.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

const PANEL_WIDTH: i32 = 480;
const NARROWEST: i32 = 760;
const ROW: i32 = 22;
const LABEL_WIDTH: i32 = 210;
const VALUE_WIDTH: i32 = 70;
const PANEL_HEAD: i32 = 44;
const PAGE_HEAD: i32 = 56;
const PAGE_FOOT: i32 = 30;
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2a);

/// Draws the panels in two columns below `title`; `note` says in small print what is better and where it was measured.
pub(crate) fn draw(path: &Path, title: &str, note: &str, panels: &[Panel]) -> anyhow::Result<()> {
    let n_columns = if panels.len() > 1 { 2 } else { 1 };
    let rows: Vec<&[Panel]> = panels.chunks(n_columns).collect();
    let height_of = |row: &[Panel]| {
        let n_bars = row.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
        PANEL_HEAD + ROW * i32::try_from(n_bars).unwrap_or(i32::MAX / ROW / 2)
    };
    let height = PAGE_HEAD + PAGE_FOOT + rows.iter().map(|row| height_of(row)).sum::<i32>();
    // The note needs room below a single column.
    let width = (PANEL_WIDTH * i32::try_from(n_columns)?).max(NARROWEST);
    let canvas = SVGBackend::new(path, (width.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
    canvas.fill(&WHITE).map_err(drawing)?;
    let pen = Pen { canvas: &canvas };
    pen.text(title, 20, INK, (16, 16), HPos::Left)?;
    pen.text(note, 12, INK, (16, height - 20), HPos::Left)?;
    let mut top = PAGE_HEAD;
    for row in rows {
        for (column, panel) in row.iter().enumerate() {
            pen.panel(panel, (PANEL_WIDTH * i32::try_from(column)?, top))?;
        }
        top += height_of(row);
    }
    canvas.present().map_err(drawing)
}

struct Pen<'a, 'b> {
    canvas: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
}

impl Pen<'_, '_> {
    fn panel(&self, panel: &Panel, (left, top): (i32, i32)) -> anyhow::Result<()> {
        self.text(&panel.title, 14, INK, (left + 16, top + 8), HPos::Left)?;
        let most = panel.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        let room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH - 16;
        for (i, bar) in panel.bars.iter().enumerate() {
            let y = top + 32 + ROW * i32::try_from(i)?;
            let start = left + LABEL_WIDTH;
            #[expect(clippy::cast_possible_truncation, reason = "at most the width of a panel")]
            let end = start + (f64::from(room) * bar.value / most).round().max(1.0) as i32;
            self.text(&bar.label, 12, INK, (start - 8, y + 2), HPos::Right)?;
            let rectangle = Rectangle::new([(start, y), (end, y + ROW - 6)], bar.shade.color().filled());
            self.canvas.draw(&rectangle).map_err(drawing)?;
            self.text(&short(bar.value), 12, INK, (end + 6, y + 2), HPos::Left)?;
        }
        Ok(())
    }

    fn text(&self, text: &str, size: i32, color: RGBColor, at: (i32, i32), side: HPos) -> anyhow::Result<()> {
        // The back end takes sizes for font heights with their line gap: 1.24 of what is drawn.
        let size = f64::from(size) * 1.24;
        let style = ("sans-serif", size).into_font().color(&color).pos(Pos::new(side, VPos::Top));
        self.canvas.draw(&Text::new(text.to_owned(), at, style)).map_err(drawing)
    }
}

/// A value in three or four digits.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn drawing<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_holds_every_label_and_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        let bar = |label: &str, value| Bar { label: label.into(), value, shade: Shade::Own };
        let panels = ["flat", "root"]
            .map(|title| Panel { title: title.into(), bars: vec![bar("Weir", 4.25), bar("NSD", 123_456.0)] });
        draw(&path, "Title", "Note", &panels).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        for text in ["Title", "Note", "flat", "root", "Weir", "NSD", "4.25", "123 k"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
