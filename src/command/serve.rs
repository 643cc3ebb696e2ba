//! `rowdex serve`: one reader for the ranks of this machine, in a separate process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use indicatif::HumanBytes;
use rowdex::loader::Share;

use crate::command::args::IndexArg;
use crate::command::carousel::CarouselArgs;
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::sampling::DealingArgs;
use crate::command::signals;

/// The reader of ranks that have started it: its socket is stdin, and what it serves is in a file, which is stdout.
#[cfg(target_os = "linux")]
pub(crate) fn at_socket() -> Result<(), Failure> {
    let socket = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned();
    let socket = socket.map_err(|error| rowdex::Error::io("cannot take over a socket", error))?;
    let job = std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned();
    let job = job.map_err(|error| rowdex::Error::io("cannot take over what to serve", error))?;
    Ok(rowdex::loader::Server::run(socket, job)?)
}

/// How often to look whether the program is to end.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex serve train.rdx --job run-7 --ranks 8 --batch-size 256 --seed 42 --memory 64GiB --threads 16
  rowdex serve train.rdx --job run-7 --ranks 8 --world-size 64 --once --columns label,text

and in each rank, started with torchrun:
  rowdex.Loader(dataset, batch_size=256, seed=42, share=rowdex.Share(job=\"run-7\"))

Start it before the ranks: it says on stdout when they may start. What decides which rows are served must
be the same there, or they are refused with the option to give. Memory and threads are its own, and
loaders leave them out. Ctrl-C and SIGTERM end it; the ranks then start a reader as they do without this,
and continue (docs/share.md).")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    index: IndexArg,

    /// The name of the job: `job` of the `rowdex.Share` of the ranks' loaders.
    #[arg(long, value_name = "JOB")]
    job: String,

    /// How many ranks of the job are on this machine.
    #[arg(long, value_name = "L", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// How many ranks the job has on all machines [default: those of this one].
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    world_size: Option<u32>,

    /// Which of the loaders of a rank this is for: `name` of their `Share` [default: the first that has none].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// How many steps a rank may be ahead of another one, about [default: 32, fewer of large batches].
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    drift: Option<u32>,

    /// End when all ranks have left, and none has come back for five seconds.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    dealing: DealingArgs,

    /// Leave out the last batch of an epoch if it is short on any rank.
    #[arg(long)]
    drop_last_batch: bool,

    /// With --pack: the column that has the tokens, or the path of a field of a struct, `doc.tokens`, and after it
    /// those with an item for each token, `tokens,weights` [default: the one whose items were counted for the lengths].
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', requires = "pack")]
    tokens: Vec<String>,

    #[command(flatten)]
    carousel: CarouselArgs,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let asked_to_end = signals::asked_to_end()?;
    let sampling = args.dealing.clone().among(args.world_size.unwrap_or(args.ranks));
    let dataset = args.carousel.open(args.index.open()?)?;
    let chosen = sampling.choose(&dataset)?;
    let sampler = sampling.sampler(&chosen, 0)?.with_drop_last_batch(args.drop_last_batch);
    let mut share = Share::machine().job(&args.job).ranks(args.ranks);
    if let Some(name) = &args.name {
        share = share.name(name);
    }
    if let Some(steps) = args.drift {
        share = share.drift(steps as usize);
    }

    let loader = args.carousel.builder(&dataset, sampler).share(share);
    let loader = match args.tokens.split_first() {
        Some((tokens, beside)) => loader.tokens(tokens).with_columns(beside),
        None => loader,
    };
    let server = loader.serve()?;
    output::print(&format!(
        "serving {} to {} of job {}, order {}, memory {}, {}; process {}\n",
        output::counted(chosen.rows, "row"),
        output::counted(args.ranks.into(), "rank"),
        args.job,
        chosen.name,
        HumanBytes(args.carousel.memory(&dataset)),
        output::counted(args.carousel.threads() as u64, "thread"),
        std::process::id(),
    ))?;
    let is_over = || asked_to_end.load(Ordering::SeqCst) || (args.once && server.is_deserted());
    while !is_over() {
        std::thread::sleep(LOOK);
    }
    let left = server.connected();
    let stats = server.stats();
    drop(server);
    dataset.disk_cache_fault().iter().for_each(complain);
    if left > 0 {
        let left = output::counted(left as u64, "loader");
        complain(format!("ended while {left} used it, which have their own reader now"));
    }
    output::print(&format!(
        "served {}, {} decoded, {} held at most\n",
        output::counted(stats.rows, "row"),
        output::counted(stats.decodes, "row group"),
        HumanBytes(stats.peak_bytes)
    ))
}
