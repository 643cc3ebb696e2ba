//! What the loaders of a machine must agree on to share a reader, and what to change where they do not.

/// How many workers each rank has.
pub(super) const WORKERS: &str = "number of workers";

/// Something that decides what is served, or how, as one process has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether it was chosen. What decides which rows are served counts as chosen, though it may be a default.
    pub(super) said: bool,
}

impl Fact {
    pub(super) fn new(name: &str, value: impl Into<String>, said: bool) -> Self {
        Self { name: name.to_owned(), value: value.into(), said }
    }
}

/// The first of a reader's facts that a rank has otherwise, and what it has. With a server, which is none of the ranks,
/// those count that the rank has chosen, and each rank has as many workers as it likes.
#[cfg(target_os = "linux")]
pub(super) fn difference<'a>(reader: &'a [Fact], rank: &'a [Fact], is_server: bool) -> Option<(&'a Fact, &'a str)> {
    reader.iter().find_map(|fact| {
        let other = rank.iter().find(|other| other.name == fact.name);
        let is_free = is_server && (fact.name == WORKERS || other.is_some_and(|other| !other.said));
        let value = other.map_or("none", |other| &other.value);
        (!is_free && value != fact.value).then_some((fact, value))
    })
}

/// What to do about a difference from a server.
#[cfg(target_os = "linux")]
pub(super) fn advice(fact: &Fact, rank: &str) -> String {
    let exact = |option: String| format!("start `rowdex serve` with `{option}`, or make the loader like it");
    let own = |option: &str| {
        format!(
            "leave it out of the loader, because it is the server's, or start `rowdex serve` with `{option} {rank}`"
        )
    };
    let digits: String = rank.chars().filter(char::is_ascii_digit).collect();
    match fact.name.as_str() {
        "dataset" => "give both the same index".to_owned(),
        "columns" => "give `rowdex serve` the columns of the loader's dataset in their order (`--columns`), and leave \
                      views out of the loader"
            .to_owned(),
        "tokens" => "name the columns with the tokens of packs and with an item for each in both, or in neither \
                     (`--tokens` of `rowdex serve`)"
            .to_owned(),
        "order" => "give both the same order, partition and seed (`--order` and `--seed` of `rowdex serve`), and the \
                    same choice of rows"
            .to_owned(),
        "batch size" => exact(format!("--batch-size {rank}")),
        "drop_last_batch" if rank == "true" => exact("--drop-last-batch".to_owned()),
        "drop_last_batch" => "start `rowdex serve` without `--drop-last-batch`, or make the loader like it".to_owned(),
        "world size" => exact(format!("--world-size {rank}")),
        "tail" => exact(format!("--tail {}", rank.to_lowercase())),
        "replicas" => exact(format!("--replication {}", rank.to_lowercase().replace(' ', ","))),
        "cost of packs" => "deal the packs of both by the same cost, or of neither by one".to_owned(),
        "on_fault" if rank == "Fail" => exact("--on-error raise".to_owned()),
        "on_fault" => exact(format!("--on-error substitute:{digits}")),
        "number of ranks on this machine" => exact(format!("--ranks {rank}")),
        "memory" => own("--memory"),
        "threads" => own("--threads"),
        "drift" => own("--drift"),
        "failing on the death of a rank" if rank == "true" => exact("--on-death fail".to_owned()),
        "failing on the death of a rank" => exact("--on-death continue".to_owned()),
        _ => "leave it out of the loader, because it is the server's".to_owned(),
    }
}
