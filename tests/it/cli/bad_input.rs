//! What cannot be right: the message names the file and says what to do, nothing half-written stays, the exit status is
//! 1.

use std::fs;

use super::place::Place;

/// The program fails with these words and leaves the folder as it is.
#[track_caller]
fn refused(place: &Place, arguments: &str, words: &[&str]) {
    let before = place.names();
    place.run(arguments).fails().complains(words);
    assert_eq!(place.names(), before, "{arguments}");
}

#[test]
fn files_that_are_not_whole_parquet_are_named_and_no_index_is_written() {
    let good = {
        let place = Place::with_data();
        fs::read(place.path("data/part-0.parquet")).unwrap()
    };
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= byte;
        bytes
    };
    let encrypted = [&good[..good.len() - 4], b"PARE"].concat();
    let cases: [(&str, Vec<u8>); 8] = [
        ("zero bytes", Vec::new()),
        ("a few bytes", b"PAR1".to_vec()),
        ("text", b"this is not a Parquet file\n".repeat(20)),
        ("cut in the middle", good[..good.len() / 2].to_vec()),
        ("one byte short", good[..good.len() - 1].to_vec()),
        ("a damaged length", with(good.len() - 6, 0xff)),
        ("a damaged footer", with(good.len() - 20, 0xff)),
        ("encrypted", encrypted),
    ];
    for (what, bytes) in cases {
        let place = Place::with_data();
        fs::write(place.path("data/part-2.parquet"), bytes).unwrap();
        let outcome = place.run("build data -o train.rdx");
        // A footer has bytes that decide nothing, and damage there can go unseen.
        if what == "a damaged footer" && outcome.stderr.is_empty() {
            continue;
        }
        outcome.fails().complains(&["part-2.parquet"]);
        assert_eq!(place.names(), ["data"], "{what}");
    }
}

#[test]
fn an_output_that_is_no_file_is_refused_even_if_it_may_be_replaced_and_a_link_stays_one() {
    let place = Place::with_data();
    place.run("build data -o train.rdx").succeeds();
    let _listening = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    std::os::unix::fs::symlink("socket", place.path("link")).unwrap();
    std::os::unix::fs::symlink("socket", place.path("page.html")).unwrap();
    for output in ["socket", "link"] {
        for force in ["", " --overwrite"] {
            for run in ["build data", "select train.rdx --sample 50%"] {
                refused(&place, &format!("{run} -o {output}{force}"), &[output, "a device, a pipe or a socket"]);
            }
        }
    }
    refused(&place, "get train.rdx 0 -o socket", &["socket", "exists"]);
    refused(&place, "info train.rdx --html page.html", &["page.html", "exists"]);
    fs::write(place.path("new.rdx"), "old").unwrap();
    std::os::unix::fs::symlink("new.rdx", place.path("to_new")).unwrap();
    place.run("build data -o to_new --overwrite").succeeds();
    assert!(place.path("to_new").is_symlink() && fs::read(place.path("new.rdx")).unwrap() != b"old");
}

#[test]
fn data_that_is_not_there_is_named() {
    let place = Place::with_data();
    fs::create_dir(place.path("empty")).unwrap();
    refused(&place, "build nowhere -o train.rdx", &["nowhere"]);
    refused(&place, "build empty -o train.rdx", &["empty", "no Parquet file"]);
    refused(&place, "build data/*.csv -o train.rdx", &["*.csv"]);
    refused(&place, "build data -o nowhere/train.rdx", &["nowhere/train.rdx"]);
    refused(&place, "build data -o data", &["data"]);
    refused(&place, "build data -o train.rdx --root empty", &["data/part-", "not below the root"]);
}

#[test]
fn renames_that_cannot_be_are_refused() {
    let place = Place::with_data();
    let build = "build data -o train.rdx --rename";
    refused(&place, &format!("{build} labl=name"), &["labl", "no file has the column", "did you mean \"label\"?"]);
    for wrong in ["label", "label=a=b"] {
        place.run(&format!("{build} {wrong}")).exits_with_usage().complains(&["--rename <OLD=NEW>", wrong]);
    }
    place.run(&format!("{build} label=name")).succeeds();
    assert_eq!(place.json("info train.rdx")["renamed"]["label"], "name");
}

#[test]
fn an_index_that_is_here_and_not_there_is_named() {
    let place = Place::with_index();
    refused(&place, "info data/train.rdx", &["data/train.rdx", "there is `train.rdx` in the current folder"]);
    refused(&place, "info nothing.rdx", &["nothing.rdx", "check the path, or build the index first"]);
}

#[test]
fn an_index_that_is_not_one_or_is_damaged_is_named() {
    let place = Place::with_index();
    let good = fs::read(place.path("train.rdx")).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    let bad = [Vec::new(), b"not an index".repeat(20), good[..good.len() - 1].to_vec(), damaged];
    for bytes in bad {
        fs::write(place.path("bad.rdx"), bytes).unwrap();
        place.run("verify bad.rdx").fails().complains(&["bad.rdx"]);
    }
    fs::remove_file(place.path("bad.rdx")).unwrap();
    for command in ["info bad.rdx", "verify bad.rdx", "get bad.rdx 0", "epoch bad.rdx"] {
        place.run(command).fails().complains(&["bad.rdx"]);
    }
}

#[test]
fn arguments_that_do_not_fit_the_dataset_are_refused() {
    let place = Place::with_index();
    refused(&place, "get train.rdx 1003", &["train.rdx", "1003", "0 to 1002"]);
    refused(&place, "get train.rdx 0 18446744073709551614", &["18446744073709551614", "0 to 1002"]);
    refused(&place, "get train.rdx 1000..1004 --output rows.arrow", &["1003"]);
    refused(&place, "info train.rdx --row 1003", &["1003", "0 to 1002"]);
    refused(&place, "get train.rdx 0 --columns id,labl", &["labl", "label"]);
    refused(&place, "epoch train.rdx --columns nothing", &["nothing"]);
    for (arguments, words) in [
        ("--batch-size 0", ["--batch-size", "from 1 on"]),
        ("--world-size 4 --rank 4", ["rank 4", "world of 4"]),
        ("--world-size 0", ["--world-size", "1.."]),
        ("--replication 0", ["--replication", "from 1 on"]),
        ("--world-size 4 --replication 3", ["3", "divide"]),
        ("--world-size 4294967295", ["--rank", "4294967295"]),
    ] {
        place.run(&format!("epoch train.rdx {arguments}")).exits_with_usage().complains(&words);
    }
    refused(&place, "epoch train.rdx --epoch 18446744073709551615", &["epoch"]);
    refused(&place, "get train.rdx 0 --root nowhere", &["part-0.parquet"]);
}

#[test]
fn a_folder_is_no_place_for_an_output() {
    let place = Place::with_index();
    fs::create_dir_all(place.path("out.svg")).unwrap();
    for command in [
        "build data -o data",
        "build data -o data --overwrite",
        "select train.rdx --sample 50% -o data",
        "get train.rdx 0 --output data",
    ] {
        refused(&place, command, &["data", "a folder, where"]);
    }
    refused(&place, "build data -o data", &["data/train.rdx"]);
}

#[test]
fn a_file_that_is_named_twice_is_told() {
    let place = Place::with_index();
    let named = |data: &str, files: &str| {
        let outcome = place.run(&format!("build {data} -o train.rdx --overwrite --json")).succeeds();
        assert_eq!(outcome.json()["rows"], 1003, "{data}");
        let told = if files == "0" {
            String::new()
        } else {
            format!("rowdex: {files} named again: each is in the index once\n")
        };
        assert_eq!((outcome.json()["repeated_files"].to_string(), &outcome.stderr), (files[..1].to_owned(), &told));
    };
    named("data", "0");
    named("data data/part-0.parquet", "1 file");
    named("data ./data/part-0.parquet data/part-0.parquet", "2 files");
    named("data data/*.parquet", "5 files");
}
