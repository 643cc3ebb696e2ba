//! The name that the processes of a job meet under.

use xxhash_rust::xxh3::xxh3_128;

/// What launchers put into the environment of all processes that they start for a job on a machine, and of no others.
/// A launcher that restarts a job, or stands for another machine on the same one, says so in some of them.
const VARIABLES: [&str; 10] = [
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_NODEID",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
];

/// One of these must be there: the others are no name of a job.
const NAMES: [&str; 5] = ["TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID"];

/// The name of the job that this process is of, if its launcher gave it one.
pub fn job_of_launcher(lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &&str| lookup(name).filter(|value| !value.trim().is_empty());
    if !NAMES.iter().any(|name| set(name).is_some()) {
        return None;
    }
    let known: Vec<String> =
        VARIABLES.iter().filter_map(|name| Some(format!("{name}={}", set(name)?.trim()))).collect();
    Some(known.join(" "))
}

/// The address of a group of loaders of a job, for processes of this user.
pub fn address(user: u32, job: &str, name: &str) -> String {
    let mut key = (job.len() as u64).to_le_bytes().to_vec();
    key.extend_from_slice(job.as_bytes());
    key.extend_from_slice(name.as_bytes());
    format!("rowdex-share-1/{user}/{:032x}", xxh3_128(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)]) -> Option<String> {
        job_of_launcher(|name| Some(variables.iter().find(|(other, _)| *other == name)?.1.to_owned()))
    }

    #[test]
    fn a_launcher_names_the_job() {
        let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")];
        let name = job(&torchrun).unwrap();
        assert_eq!(name, "TORCHELASTIC_RUN_ID=none MASTER_ADDR=localhost MASTER_PORT=29500");
        assert_ne!(job(&[&torchrun[..2], &[("MASTER_PORT", "29501")]].concat()).unwrap(), name);
        assert_ne!(job(&[&torchrun[..], &[("TORCHELASTIC_RESTART_COUNT", "1")]].concat()).unwrap(), name);
        assert!(job(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")]).is_some());
    }

    #[test]
    fn without_a_launcher_a_job_has_no_name() {
        assert_eq!(job(&[]), None);
        assert_eq!(job(&[("MASTER_PORT", " ")]), None);
        assert_eq!(job(&[("GROUP_RANK", "0"), ("MASTER_ADDR", "localhost")]), None, "every machine has these");
    }

    #[test]
    fn users_jobs_and_names_have_addresses_of_their_own() {
        let addresses = [
            address(1, "job", "train"),
            address(2, "job", "train"),
            address(1, "jobs", "train"),
            address(1, "job", "valid"),
            address(1, "jobt", "rain"),
        ];
        assert_eq!(addresses.iter().collect::<std::collections::HashSet<_>>().len(), 5);
        assert!(addresses.iter().all(|address| address.len() < 90), "the address of a socket has 107 bytes");
    }
}
