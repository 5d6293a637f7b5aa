//! What each CPU did between two looks, as mpstat shows it.

use std::fs;

/// Times of one CPU since the start, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    user: u64,
    system: u64,
    softirq: u64,
    idle: u64,
    all: u64,
}

/// A look at all CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Look(Vec<Ticks>);

/// Shares of a CPU's time, in a hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) softirq: f64,
    pub(crate) idle: f64,
}

impl Look {
    /// Looks now.
    pub(crate) fn now() -> Look {
        Look::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Lines `cpuN user nice system idle iowait irq softirq steal ...` of proc_stat(5).
    fn read(text: &str) -> Look {
        let of_cpu = |line: &str| {
            let (name, rest) = line.split_once(' ')?;
            name.strip_prefix("cpu").filter(|number| !number.is_empty())?;
            let fields: Vec<u64> =
                rest.split_whitespace().take(8).map(|field| field.parse().unwrap_or(0)).collect();
            let [user, nice, system, idle, iowait, irq, softirq, ..] = fields[..] else { return None };
            Some(Ticks {
                user: user + nice,
                system,
                softirq: softirq + irq,
                idle: idle + iowait,
                all: fields.iter().sum(),
            })
        };
        Look(text.lines().filter_map(of_cpu).collect())
    }

    /// What each CPU did since `earlier`.
    pub(crate) fn since(&self, earlier: &Look) -> Vec<Shares> {
        let pair = self.0.iter().zip(&earlier.0);
        pair.map(|(now, then)| {
            #[expect(clippy::cast_precision_loss, reason = "ticks of seconds")]
            let share =
                |now: u64, then: u64, all: u64| 100.0 * now.saturating_sub(then) as f64 / all.max(1) as f64;
            let all = now.all.saturating_sub(then.all);
            Shares {
                user: share(now.user, then.user, all),
                system: share(now.system, then.system, all),
                softirq: share(now.softirq, then.softirq, all),
                idle: share(now.idle, then.idle, all),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_between_two_looks() {
        let then = Look::read("cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 10 100 0 0 0 0 0 0\nintr 1\n");
        let now = Look::read("cpu  9 9 9 9 9 9 9 9\ncpu0 30 0 20 160 0 0 10 0 0 0\nintr 1\n");
        assert_eq!(now.since(&then), [Shares { user: 20.0, system: 10.0, softirq: 10.0, idle: 60.0 }]);
    }
}
