//! `build` killed at any moment leaves the old index, the new one, or nothing if there was nothing.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rowdex::Index;

use super::place::{Place, rows_from};

const KILLS: u32 = 100;
const FILES: u64 = 400;
const ROWS_PER_FILE: u64 = 5;
const OLD_ROWS: u64 = 3;

#[test]
fn a_build_killed_at_any_moment_leaves_a_whole_index_or_what_was_there() {
    let place = Place::new();
    place.write("old/a.parquet", &rows_from(0, OLD_ROWS as usize));
    place.write("new/0.parquet", &rows_from(0, ROWS_PER_FILE as usize));
    let one = fs::read(place.path("new/0.parquet")).unwrap();
    for number in 1..FILES {
        fs::write(place.path(format!("new/{number}.parquet")), &one).unwrap();
    }
    place.run("build old -o old.rdx --root .").succeeds();
    let build = || {
        let started = Instant::now();
        place.run("build new -o whole.rdx --root . --overwrite").succeeds();
        started.elapsed()
    };
    // A machine that was busy once is not for long.
    let whole = build().min(build()).min(build());
    fs::remove_file(place.path("whole.rdx")).unwrap();

    let target = place.path("train.rdx");
    let (mut old, mut new, mut none, mut temporary) = (0, 0, 0, 0);
    let mut random = 7_u64;
    for kill in 0..KILLS {
        let replaces = kill % 2 == 0;
        let _ = fs::remove_file(&target);
        if replaces {
            fs::copy(place.path("old.rdx"), &target).unwrap();
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut build = place.command("build new -o train.rdx --root . --overwrite");
        let mut build = build.stdout(Stdio::null()).spawn().unwrap();
        // A little more than the whole, so that the last steps are hit as well.
        sleep(whole.mul_f64(1.1 * (random >> 11) as f64 / (1_u64 << 53) as f64).min(Duration::from_millis(500)));
        build.kill().unwrap();
        build.wait().unwrap();

        match Index::open(&target) {
            Ok(index) => {
                index.verify().unwrap();
                match index.len() {
                    OLD_ROWS if replaces => old += 1,
                    rows if rows == FILES * ROWS_PER_FILE => new += 1,
                    rows => panic!("kill {kill} left {rows} rows"),
                }
            }
            Err(error) => {
                assert!(!replaces && !target.exists(), "kill {kill}: {error}");
                none += 1;
            }
        }
        for name in place.names() {
            if name.starts_with(".train.rdx.tmp-") {
                temporary += 1;
                fs::remove_file(place.path(name)).unwrap();
            } else {
                assert!(["old", "new", "old.rdx", "train.rdx"].contains(&name.as_str()), "kill {kill} left {name}");
            }
        }
    }
    assert_eq!(old + new + none, KILLS);
    // Otherwise the builds were over before they were killed, or killed before they began, and nothing was tested.
    assert!(old + none > 0 && temporary > 0, "{old} old, {new} new, {none} none, {temporary} temporary");
}
