//! Aligned tables.

/// On which side of its column a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Lines of a table: the headings, then the rows, two spaces apart. Rows have as many cells as there are columns.
pub(super) fn lines(columns: &[(&str, Side)], rows: &[Vec<String>]) -> Vec<String> {
    let headings: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&headings]);
        cells
            .filter_map(|row| row.get(column))
            .map(|c| c.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells =
            row.iter()
                .zip(columns)
                .zip(&widths)
                .map(|((cell, (_, side)), width)| match side {
                    Side::Left => format!("{cell:<width$}"),
                    Side::Right => format!("{cell:>width$}"),
                });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    [&headings].into_iter().chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["längst".to_owned(), "200".to_owned()],
        ];
        let lines = lines(&[("what", Side::Left), ("n", Side::Right)], &rows);
        assert_eq!(lines, ["what      n", "a         1", "längst  200"]);
    }
}
