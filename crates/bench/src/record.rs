//! Raw results: a line a turn in `raw.csv`, appended as they come, so that an interrupted run goes on where it was.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::server::Server;
use crate::workload::Case;

/// One server's turn at one case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) server: Server,
    pub(crate) round: u32,
    /// The figures, in the order of [`Figures::NAMES`].
    pub(crate) figures: Figures,
}

/// What was measured in a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Server CPU time an answer under full load.
    pub(crate) cpu_us: f64,
    pub(crate) answers_per_second: f64,
    /// Queries without an answer, in a hundred.
    pub(crate) lost_percent: f64,
    /// The load of the following three: half of the highest.
    pub(crate) half_rate: f64,
    pub(crate) half_p50_us: f64,
    pub(crate) half_p99_us: f64,
    pub(crate) half_cpu_us: f64,
    pub(crate) memory_kib: f64,
    /// From start to first answer.
    pub(crate) start_ms: f64,
    pub(crate) answer_octets: f64,
    /// Shares of the answers, in a hundred.
    pub(crate) noerror_percent: f64,
    pub(crate) nxdomain_percent: f64,
}

impl Figures {
    const NAMES: [&'static str; 12] = [
        "cpu_us",
        "answers_per_second",
        "lost_percent",
        "half_rate",
        "half_p50_us",
        "half_p99_us",
        "half_cpu_us",
        "memory_kib",
        "start_ms",
        "answer_octets",
        "noerror_percent",
        "nxdomain_percent",
    ];

    fn values(&self) -> [f64; 12] {
        [
            self.cpu_us,
            self.answers_per_second,
            self.lost_percent,
            self.half_rate,
            self.half_p50_us,
            self.half_p99_us,
            self.half_cpu_us,
            self.memory_kib,
            self.start_ms,
            self.answer_octets,
            self.noerror_percent,
            self.nxdomain_percent,
        ]
    }

    fn of(values: [f64; 12]) -> Figures {
        let [cpu_us, answers_per_second, lost_percent, half_rate, half_p50_us, half_p99_us, half_cpu_us, ..] =
            values;
        let [.., memory_kib, start_ms, answer_octets, noerror_percent, nxdomain_percent] = values;
        Figures {
            cpu_us,
            answers_per_second,
            lost_percent,
            half_rate,
            half_p50_us,
            half_p99_us,
            half_cpu_us,
            memory_kib,
            start_ms,
            answer_octets,
            noerror_percent,
            nxdomain_percent,
        }
    }

    /// The median of each figure over `rounds`; `None` without any.
    fn median(rounds: &[&Figures]) -> Option<Figures> {
        let values: Vec<[f64; 12]> = rounds.iter().map(|figures| figures.values()).collect();
        let mut medians = [0.0; 12];
        for (i, median_of) in medians.iter_mut().enumerate() {
            *median_of = median(values.iter().map(|row| row[i]).collect())?;
        }
        Some(Figures::of(medians))
    }
}

/// The median; of an even number of values the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*values.get(middle.checked_sub(1)?)?, upper))
}

/// The rows of a folder.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    pub(crate) rows: Vec<Row>,
}

impl Record {
    /// Opens `raw.csv` in `folder`, with what it holds already.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Record> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join("raw.csv");
        let head = format!("case,server,round,{}", Figures::NAMES.join(","));
        if !path.exists() {
            fs::write(&path, format!("{head}\n"))?;
        }
        let text = fs::read_to_string(&path)?;
        let mut lines = text.lines();
        if lines.next() != Some(&head) {
            bail!("{}: not the columns of this version; move it away", path.display());
        }
        let rows = lines.map(|line| read_row(line).with_context(|| format!("{}: {line}", path.display())));
        Ok(Record { rows: rows.collect::<anyhow::Result<_>>()?, path })
    }

    /// Whether a turn is there.
    pub(crate) fn has(&self, case: Case, server: Server, round: u32) -> bool {
        self.rows.iter().any(|row| (row.case, row.server, row.round) == (case, server, round))
    }

    /// Adds a turn, on disk at once.
    pub(crate) fn add(&mut self, row: Row) -> anyhow::Result<()> {
        let values: Vec<String> = row.figures.values().iter().map(|value| format!("{value:.3}")).collect();
        let line = format!("{},{},{},{}\n", row.case, row.server.name(), row.round, values.join(","));
        OpenOptions::new().append(true).open(&self.path)?.write_all(line.as_bytes())?;
        self.rows.push(row);
        Ok(())
    }

    /// The median of a server's rounds at a case.
    pub(crate) fn median(&self, case: Case, server: Server) -> Option<Figures> {
        let rounds: Vec<&Figures> = self
            .rows
            .iter()
            .filter(|row| (row.case, row.server) == (case, server))
            .map(|row| &row.figures)
            .collect();
        Figures::median(&rounds)
    }

    /// The server whose answers take the most CPU time at a case.
    pub(crate) fn dearest(&self, case: Case) -> Option<Server> {
        let cost = |server: Server| Some((server, self.median(case, server)?.cpu_us));
        let costs = self.servers().into_iter().filter_map(cost);
        costs.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(server, _)| server)
    }

    /// The cases there are, in the order in which they came.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for row in &self.rows {
            if !cases.contains(&row.case) {
                cases.push(row.case);
            }
        }
        cases
    }

    /// The servers there are, as [`Server::USUAL`] orders them.
    pub(crate) fn servers(&self) -> Vec<Server> {
        let all = Server::USUAL.into_iter().chain([Server::EchoNap, Server::EchoSlow]);
        all.filter(|server| self.rows.iter().any(|row| row.server == *server)).collect()
    }
}

fn read_row(line: &str) -> anyhow::Result<Row> {
    let mut fields = line.split(',');
    let mut next = || fields.next().context("a field is missing");
    let case = next()?.parse().map_err(anyhow::Error::msg)?;
    let server = next()?.parse().map_err(anyhow::Error::msg)?;
    let round = next()?.parse()?;
    let mut values = [0.0; 12];
    for value in &mut values {
        *value = next()?.parse()?;
    }
    Ok(Row { case, server, round, figures: Figures::of(values) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_with_what_it_finds() {
        let folder = tempfile::tempdir().unwrap();
        let case: Case = "flat/tcp".parse().unwrap();
        let mut record = Record::open(folder.path()).unwrap();
        for (round, cpu_us) in [(1, 5.0), (2, 3.0), (3, 4.0)] {
            let figures = Figures { cpu_us, nxdomain_percent: 7.0, ..Figures::default() };
            record.add(Row { case, server: Server::Nsd, round, figures }).unwrap();
        }
        let again = Record::open(folder.path()).unwrap();
        assert_eq!(again.rows, record.rows);
        assert!(again.has(case, Server::Nsd, 3) && !again.has(case, Server::Weir, 3));
        let median = again.median(case, Server::Nsd).unwrap();
        assert_eq!((median.cpu_us, median.nxdomain_percent), (4.0, 7.0));
    }

    #[test]
    fn the_dearest_server_is_the_one_with_the_highest_median() {
        let folder = tempfile::tempdir().unwrap();
        let case: Case = "flat".parse().unwrap();
        let mut record = Record::open(folder.path()).unwrap();
        assert_eq!(record.dearest(case), None);
        for (server, costs) in [(Server::EchoSlow, [52.0, 55.0, 54.0]), (Server::Bind, [9.0, 99.0, 9.0])] {
            for (round, cpu_us) in (1..).zip(costs) {
                let figures = Figures { cpu_us, ..Figures::default() };
                record.add(Row { case, server, round, figures }).unwrap();
            }
        }
        assert_eq!(record.dearest(case), Some(Server::EchoSlow));
    }

    #[test]
    fn the_median_of_none_is_none() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }
}
