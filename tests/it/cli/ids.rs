//! The row ids of a rank, one a line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::place::{Place, ROWS};

fn ids(place: &Place, arguments: &str) -> Vec<u64> {
    let text = place.run(&format!("ids {arguments}")).succeeds().text();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_rank_of_an_unshuffled_order_gets_every_so_many_th_row() {
    let place = Place::with_index();
    for (rank, tail) in [(0, "drop"), (3, "drop"), (0, "uneven"), (3, "uneven"), (1, "wrap")] {
        let got = ids(&place, &format!("train.rdx --order sequential --world-size 4 --rank {rank} --tail {tail}"));
        let rows = if tail == "drop" { ROWS / 4 * 4 } else { ROWS } as u64;
        assert_eq!(got, (rank..rows).step_by(4).collect::<Vec<_>>(), "{rank} {tail}");
    }
}

#[test]
fn all_ranks_together_get_every_row_once_and_pads_are_marked() {
    let place = Place::with_index();
    let mut all = Vec::new();
    let mut pads = Vec::new();
    for rank in 0..4 {
        let arguments = format!("ids train.rdx --world-size 4 --rank {rank} --seed 3 --epoch 2 --pads");
        let text = place.run(&arguments).succeeds().text();
        assert_eq!(text.lines().count(), ROWS.div_ceil(4));
        for line in text.lines() {
            match line.split_once('\t') {
                None => all.push(line.parse::<u64>().unwrap()),
                Some((row, mark)) => {
                    assert_eq!(mark, "pad");
                    pads.push(row.parse::<u64>().unwrap());
                }
            }
        }
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..ROWS as u64));
    assert_eq!(pads, ids(&place, "train.rdx --seed 3 --epoch 2 --limit 1"));
}

#[test]
fn a_length_alone_gives_what_an_index_of_that_length_gives() {
    let place = Place::with_index();
    for options in ["", "--order sequential", "--seed 5 --epoch 1 --world-size 3 --rank 2"] {
        assert_eq!(ids(&place, &format!("train.rdx {options}")), ids(&place, &format!("--len {ROWS} {options}")));
    }
}

#[test]
fn any_part_of_the_stream_is_the_same_part_of_the_whole() {
    let place = Place::new();
    for (rows, options) in [(10_000, ""), (9_001, "--world-size 2 --rank 1"), (10, ""), (0, ""), (3, "--tail drop")] {
        let options = format!("--len {rows} --epoch 4 --epochs 3 {options}");
        let whole = ids(&place, &options);
        for from in [0, 1, 9, 4095, 4096, 4097, 9_999, 10_001, 13_502, 29_999] {
            for limit in [0, 1, 5, 4096, 9_000, 50_000] {
                let outcome = place.run(&format!("ids {options} --from {from} --limit {limit}"));
                if from > whole.len() {
                    outcome.fails().complains(&[&from.to_string(), &whole.len().to_string()]);
                    continue;
                }
                let got: Vec<u64> = outcome.succeeds().text().lines().map(|line| line.parse().unwrap()).collect();
                assert_eq!(got, whole[from..].iter().copied().take(limit).collect::<Vec<_>>(), "{from} {limit}");
            }
        }
    }
}

#[test]
fn the_rows_per_step_have_no_influence_and_are_refused() {
    let place = Place::new();
    place.run("ids --len 10000 --batch-size 1").exits_with_usage().complains(&["--batch-size"]);
}

#[test]
fn an_order_that_never_changes_begins_elsewhere_each_epoch_unless_it_may_not() {
    let place = Place::new();
    let options = "--len 10 --order sequential --world-size 4 --rank 0 --tail drop --epochs 3";
    assert_eq!(ids(&place, &format!("{options} --no-rotate")), [0, 4, 0, 4, 0, 4]);
    let rotated = ids(&place, options);
    assert!(rotated[..2] == [0, 4] && rotated[2] != 0 && rotated[4] != 0 && rotated[2] != rotated[4]);
}

#[test]
fn whoever_has_read_enough_may_go() {
    let place = Place::new();
    let mut child =
        place.command("ids --len 9000000000000").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.trim_end().parse::<u64>().unwrap() < 9_000_000_000_000);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let place = Place::with_index();
    place.run("ids").exits_with_usage();
    place.run("ids train.rdx --len 5").exits_with_usage();
    place.run("ids --len -5").exits_with_usage();
    place.run("ids train.rdx --world-size 4").exits_with_usage().complains(&["--rank", "4"]);
    place.run("ids train.rdx --world-size 4 --rank 4").exits_with_usage().complains(&["rank 4", "world of 4"]);
    place.run("ids train.rdx --world-size 0").exits_with_usage().complains(&["--world-size"]);
    place.run("ids train.rdx --world-size 4 --rank 0 --tail error").fails().complains(&["1003", "4"]);
    place.run("ids --len 18446744073709551615").fails().complains(&["18446744073709551615"]);
    place.run("ids --len 10 --from 11").fails().complains(&["11", "10 samples"]);
    place.run("ids --len 10 --epoch 18446744073709551615").exits_with_usage().complains(&["epoch"]);
    place.run("ids nowhere.rdx").fails().complains(&["nowhere.rdx"]);
}
