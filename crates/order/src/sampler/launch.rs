//! Which rank this process is, from what its launcher put into the environment.

use std::fmt;

use super::shard::Shard;
use rowdex_base::error::{Error, Result};

/// What can start a process as one of several, by its name; where several are found and agree, the first one counts.
/// Then its variables: of the rank, the number of ranks, the rank on this machine and the number of ranks on it, which
/// not all launchers say.
const LAUNCHERS: [(&str, [&str; 4]); 4] = [
    // And everything that speaks as it does.
    ("torchrun", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]),
    (
        "Open MPI",
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ),
    // MPICH, Intel MPI and others.
    ("PMI", ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"]),
    ("Slurm", ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""]),
];

/// The rank that a launcher gave this process. Displayed with where it is from:
/// `rank 3 of 8, local rank 1 of 2 (torchrun: RANK and WORLD_SIZE)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Launch {
    /// Whose variables these are: `torchrun`, `Open MPI`, `PMI` or `Slurm`.
    pub launcher: &'static str,
    /// Those of the rank and the number of ranks.
    variables: [&'static str; 2],
    /// The rank of this process, below `world_size`.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// Which of the ranks on this machine it is, if the launcher says.
    pub local_rank: Option<u32>,
    /// The number of ranks on this machine, if the launcher says.
    pub local_world_size: Option<u32>,
}

impl Launch {
    /// What the environment of this process says.
    ///
    /// # Errors
    ///
    /// Those of [`from_vars`](Self::from_vars).
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// What these variables say; one that is empty counts as not set.
    ///
    /// Several launchers may be in play, and must agree: on the rank and the number of ranks, or, where another
    /// launcher started one `torchrun` for each machine, on the machine and the number of machines. `SLURM_NTASKS`
    /// alone is what an allocation sets, and counts only with `SLURM_PROCID`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no launcher is found, if one of a rank and a number of ranks is set without the other, if a
    /// value is not a number or a rank not below its number, or if launchers disagree. The error names the variables.
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let mut found = Vec::new();
        let mut half = Vec::new();
        for (launcher, names) in LAUNCHERS {
            let [rank, world_size, ..] = names;
            match (lookup(rank), lookup(world_size)) {
                (Some(_), Some(_)) => found.push(Self::of(launcher, names, &lookup)?),
                (Some(_), None) => half.push((launcher, rank, world_size)),
                (None, Some(_)) => half.push((launcher, world_size, rank)),
                (None, None) => {}
            }
        }
        if !found.is_empty() {
            half.retain(|(_, set, _)| *set != "SLURM_NTASKS");
        }
        if let Some((launcher, set, missing)) = half.first() {
            return Err(Error::invalid(format!("{set} is set and {missing} is not"))
                .with_hint(format!("start the ranks with {}, or set both, or neither", launcher)));
        }
        let Some(&chosen) = found.first() else {
            return Err(Error::invalid(
                "no launcher has set a rank: neither RANK and WORLD_SIZE (torchrun), nor OMPI_COMM_WORLD_RANK and \
                 OMPI_COMM_WORLD_SIZE (Open MPI), nor PMI_RANK and PMI_SIZE (PMI), nor SLURM_PROCID and \
                 SLURM_NTASKS (Slurm)",
            )
            .with_hint("start with torchrun, mpirun or srun, or give rank and world size yourself"));
        };
        if let Some(other) = found.iter().find(|other| !chosen.agrees_with(other, &lookup)) {
            return Err(Error::invalid(format!("the environment says both {chosen} and {other}")).with_hint(
                "unset the variables of the launcher that did not start this process, or give rank and world size \
                 yourself",
            ));
        }
        Ok(chosen)
    }

    /// The variables of one launcher, of which rank and number are set.
    fn of(launcher: &'static str, names: [&'static str; 4], lookup: &impl Fn(&str) -> Option<String>) -> Result<Self> {
        let read = |name| lookup(name).map(|value| number(name, &value)).transpose();
        let rank = read(names[0])?.unwrap_or(0);
        let world_size = read(names[1])?.unwrap_or(0);
        let local_rank = read(names[2])?;
        let local_world_size = read(names[3])?;
        below(names[0], rank, names[1], world_size)?;
        if let (Some(rank), Some(size)) = (local_rank, local_world_size) {
            below(names[2], rank, names[3], size)?;
        }
        Ok(Self { launcher, variables: [names[0], names[1]], rank, world_size, local_rank, local_world_size })
    }

    fn agrees_with(&self, other: &Self, lookup: &impl Fn(&str) -> Option<String>) -> bool {
        if (self.rank, self.world_size) == (other.rank, other.world_size) {
            return true;
        }
        // One torchrun per machine, started by the other.
        let group = |name| lookup(name).and_then(|value| value.trim().parse().ok());
        let named = (group("GROUP_RANK"), group("GROUP_WORLD_SIZE"));
        let counted = self.local_world_size.filter(|size| *size > 0 && self.world_size.is_multiple_of(*size));
        let counted = counted.map(|size| (self.rank / size, self.world_size / size));
        self.launcher == "torchrun"
            && (named == (Some(other.rank), Some(other.world_size)) || counted == Some((other.rank, other.world_size)))
    }

    /// The shard of this rank.
    ///
    /// # Errors
    ///
    /// Those of [`Shard::new`].
    pub fn shard(&self) -> Result<Shard> {
        Shard::new(self.rank, self.world_size)
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rank, world_size] = self.variables;
        write!(f, "rank {} of {}", self.rank, self.world_size)?;
        match (self.local_rank, self.local_world_size) {
            (Some(rank), Some(size)) => write!(f, ", local rank {rank} of {size}")?,
            (Some(rank), None) => write!(f, ", local rank {rank}")?,
            _ => {}
        }
        write!(f, " ({}: {rank} and {world_size})", self.launcher)
    }
}

impl Shard {
    /// The shard of the rank that the launcher of this process gave it, with tail [`Tail::Wrap`](super::Tail::Wrap) and
    /// no replicas: that of [`Launch::from_env`], which also says where it is from.
    ///
    /// # Errors
    ///
    /// Those of [`Launch::from_vars`].
    pub fn from_env() -> Result<Self> {
        Launch::from_env()?.shard()
    }
}

fn number(name: &str, value: &str) -> Result<u32> {
    let bad = |_| Error::invalid(format!("{name} is {value:?}, which is not a number of ranks or a rank"));
    value.trim().parse().map_err(bad)
}

fn below(rank_name: &str, rank: u32, size_name: &str, size: u32) -> Result<()> {
    if rank < size {
        return Ok(());
    }
    Err(Error::invalid(format!("{rank_name} is {rank} and {size_name} is {size}"))
        .with_hint("ranks count from 0 to the number of ranks less one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    fn launch(variables: &[(&str, &str)]) -> Result<Launch> {
        Launch::from_vars(|name| Some(variables.iter().find(|(other, _)| *other == name)?.1.to_owned()))
    }

    fn refused(variables: &[(&str, &str)], words: &[&str]) {
        let error = launch(variables).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }

    #[test]
    fn each_launcher_is_understood_and_named() {
        let cases: [(&[(&str, &str)], &str); 5] = [
            (
                &[("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")],
                "rank 3 of 8, local rank 1 of 2 (torchrun: RANK and WORLD_SIZE)",
            ),
            (
                &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "0")],
                "rank 0 of 4, local rank 0 (Slurm: SLURM_PROCID and SLURM_NTASKS)",
            ),
            (
                &[("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_SIZE", "6")],
                "rank 5 of 6 (Open MPI: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE)",
            ),
            (
                &[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")],
                "rank 1 of 2, local rank 1 of 2 (PMI: PMI_RANK and PMI_SIZE)",
            ),
            (
                &[("RANK", " 3 "), ("WORLD_SIZE", "8"), ("LOCAL_RANK", ""), ("PMI_RANK", "")],
                "rank 3 of 8 (torchrun: RANK and WORLD_SIZE)",
            ),
        ];
        for (variables, expected) in cases {
            let launch = launch(variables).unwrap();
            assert_eq!(launch.to_string(), expected);
            assert_eq!(launch.shard().unwrap(), Shard::new(launch.rank, launch.world_size).unwrap());
        }
    }

    #[test]
    fn launchers_that_agree_are_one() {
        let both = [
            ("SLURM_PROCID", "2"),
            ("SLURM_NTASKS", "4"),
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ];
        assert_eq!(launch(&both).unwrap().launcher, "Open MPI");
    }

    #[test]
    fn a_torchrun_on_each_machine_is_no_contradiction() {
        let torchrun = [("RANK", "5"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        for rest in [&[("LOCAL_WORLD_SIZE", "4")][..], &[("GROUP_RANK", "1"), ("GROUP_WORLD_SIZE", "2")]] {
            let launch = launch(&[&torchrun[..], rest].concat()).unwrap();
            assert_eq!((launch.launcher, launch.rank, launch.world_size), ("torchrun", 5, 8));
        }
        refused(&torchrun, &["rank 5 of 8", "rank 1 of 2", "SLURM_PROCID", "unset"]);
        refused(&[&torchrun[..], &[("LOCAL_WORLD_SIZE", "2")]].concat(), &["SLURM_PROCID"]);
    }

    #[test]
    fn an_allocation_without_tasks_is_no_launcher() {
        let rank = [("SLURM_NTASKS", "4"), ("RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(launch(&rank).unwrap().world_size, 2);
        refused(&rank[..1], &["SLURM_NTASKS is set and SLURM_PROCID is not", "Slurm"]);
    }

    #[test]
    fn what_is_missing_or_contradicts_is_named() {
        refused(&[], &["WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "SLURM_PROCID"]);
        refused(&[("RANK", "0")], &["RANK is set and WORLD_SIZE is not", "torchrun"]);
        refused(&[("WORLD_SIZE", "2")], &["WORLD_SIZE is set and RANK is not"]);
        refused(&[("WORLD_SIZE", "2"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")], &["RANK is not"]);
        refused(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")], &["torchrun", "PMI_RANK"]);
        refused(&[("RANK", "two"), ("WORLD_SIZE", "2")], &["RANK is \"two\""]);
        refused(&[("RANK", "-1"), ("WORLD_SIZE", "2")], &["RANK is \"-1\""]);
        refused(&[("RANK", "2"), ("WORLD_SIZE", "2")], &["RANK is 2 and WORLD_SIZE is 2"]);
        refused(&[("RANK", "0"), ("WORLD_SIZE", "0")], &["WORLD_SIZE is 0"]);
        let local = [("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "1")];
        refused(&local, &["LOCAL_RANK is 1"]);
    }
}
