use std::fs::OpenOptions;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

fn disk_cache(folder: &Path, bytes: u64) -> CacheFolder<Bytes> {
    CacheFolder::new(DiskCache::new(folder, bytes), |bytes| Ok((bytes, 0)))
}

fn key(name: impl fmt::Display) -> CacheKey {
    CacheKey::new(format!("entry {name}"))
}

/// Makes an entry, if the disk cache lets it.
fn put(disk_cache: &CacheFolder<Bytes>, name: impl fmt::Display, payload: &[u8]) -> bool {
    match disk_cache.find_or_make(key(name), payload.len() as u64) {
        Claim::Make(mut maker) => {
            payload.chunks(7).for_each(|part| maker.write(part));
            let before = disk_cache.counters().writes;
            maker.commit();
            disk_cache.counters().writes > before
        }
        _ => false,
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn total(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

fn used_at(disk_cache: &CacheFolder<Bytes>, name: impl fmt::Display, ago: Duration) {
    let file = OpenOptions::new().write(true).open(disk_cache.path(&key(name))).unwrap();
    file.set_modified(SystemTime::now() - ago).unwrap();
}

#[test]
fn an_entry_that_one_process_made_is_found_by_the_others_at_an_address_that_arrow_wants() {
    let folder = TempDir::new().unwrap();
    // The folder is made, with those above it.
    let below = folder.path().join("a/b");
    for length in [0, 1, 63, 64, 65, 100_000] {
        let payload: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
        let first = disk_cache(&below, 1 << 20);
        assert!(put(&first, length, &payload));
        for disk_cache in [first, disk_cache(&below, 1 << 20)] {
            let found = disk_cache.find(&key(length)).unwrap();
            assert_eq!(*found, payload);
            assert_eq!(found.as_ptr() as usize % 64, 0);
            assert_eq!(disk_cache.counters().hits, 1);
        }
    }
    assert_eq!(names(&below).len(), 6, "nothing else is left");
}

#[test]
fn the_folder_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("disk_cache");
    assert!(put(&disk_cache(&below, 1 << 20), 1, b"x"));
    assert_eq!(fs::metadata(below).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn every_truncation_and_every_flipped_bit_is_noticed_and_the_entry_is_made_anew() {
    let folder = TempDir::new().unwrap();
    let payload = b"the payload of an entry";
    let maker = disk_cache(folder.path(), 1 << 20);
    assert!(put(&maker, "a", payload));
    let path = maker.path(&key("a"));
    let sound = fs::read(&path).unwrap();
    let check = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        let disk_cache = disk_cache(folder.path(), 1 << 20);
        assert!(disk_cache.find(&key("a")).is_none(), "{what}");
        assert_eq!((disk_cache.counters().discards, disk_cache.counters().misses), (1, 1), "{what}");
        assert!(!path.exists(), "{what}");
        assert!(put(&disk_cache, "a", payload), "{what}");
        assert_eq!(*disk_cache.find(&key("a")).unwrap(), payload[..], "{what}");
        assert!(disk_cache.fault().is_none());
    };
    for length in 0..sound.len() {
        check(&sound[..length], &format!("cut to {length} bytes"));
    }
    for bit in 0..sound.len() * 8 {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(&bytes, &format!("bit {bit} flipped"));
    }
    check(&[sound.clone(), vec![0]].concat(), "a byte too many");
    check(b"a file of somebody else, which is long enough to have a header of an entry, but has none", "foreign");
    assert!(put(&maker, "b", payload));
    check(&fs::read(maker.path(&key("b"))).unwrap(), "the entry of another key");
}

#[test]
fn an_entry_may_be_deleted_while_it_is_in_use() {
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("disk_cache");
    let disk_cache = disk_cache(&below, 1 << 20);
    assert!(put(&disk_cache, "a", &[7; 100_000]));
    let held = disk_cache.find(&key("a")).unwrap();
    fs::remove_dir_all(&below).unwrap();
    assert!(held.iter().all(|byte| *byte == 7));
    assert!(disk_cache.find(&key("a")).is_none(), "what is deleted takes no room for long");
    assert!(put(&disk_cache, "a", b"again"));
    assert_eq!(*disk_cache.find(&key("a")).unwrap(), b"again"[..]);
    let Claim::Make(mut maker) = disk_cache.find_or_make(key("b"), 1) else { panic!("there is room") };
    maker.write(b"b");
    fs::remove_dir_all(&below).unwrap();
    maker.commit();
    assert!(disk_cache.find(&key("b")).is_none() && disk_cache.fault().is_none());
}

#[test]
fn the_least_recently_used_entries_of_all_processes_make_room_first() {
    let folder = TempDir::new().unwrap();
    let payload = [1; 1000];
    let before = disk_cache(folder.path(), 10_000);
    for name in 0..4 {
        assert!(put(&before, name, &payload));
    }
    let each = total(folder.path()) / 4;
    for (name, ago) in [(2, 900), (0, 800), (3, 700), (1, 600)] {
        used_at(&before, name, Duration::from_secs(ago));
    }
    thread::sleep(Duration::from_millis(5));
    let now = disk_cache(folder.path(), 4 * each);
    assert!(now.find(&key(2)).is_some(), "which is then the one used last");
    assert!(put(&now, 4, &payload));
    assert!(now.find(&key(0)).is_none());
    assert!(put(&now, 5, &payload));
    assert!(now.find(&key(3)).is_none() && now.find(&key(1)).is_some() && now.find(&key(2)).is_some());
    let counters = now.counters();
    assert_eq!((counters.evictions, counters.bytes_evicted), (2, 2 * each));
    assert_eq!((counters.writes, counters.bytes_written), (2, 2 * each));
    assert_eq!(total(folder.path()), 4 * each);
}

#[test]
fn what_is_in_use_makes_no_room_for_more_and_the_bytes_stay_within_the_budget() {
    let folder = TempDir::new().unwrap();
    let first = disk_cache(folder.path(), 1 << 20);
    assert!(put(&first, 0, &[1; 1000]));
    let each = total(folder.path());
    let disk_cache = disk_cache(folder.path(), 3 * each + each / 2);
    for name in (0..5).flat_map(|_| 0..6) {
        put(&disk_cache, name, &[1; 1000]);
        assert!(total(folder.path()) <= 3 * each + each / 2);
    }
    assert_eq!(disk_cache.counters().evictions, 0);
    assert_eq!(disk_cache.counters().writes, 2);
    // The three that are there are found in each turn, but for the two when they were made.
    assert_eq!(disk_cache.counters().hits, 5 * 3 - 2);
    assert!(!put(&disk_cache, "large", &[1; 10_000]), "more than the budget is not even tried");
}

#[test]
fn an_entry_that_another_makes_is_not_waited_for() {
    let folder = TempDir::new().unwrap();
    let first = disk_cache(folder.path(), 1 << 20);
    let second = disk_cache(folder.path(), 1 << 20);
    let Claim::Make(mut maker) = first.find_or_make(key(0), 1) else { panic!("there is room") };
    assert!(matches!(second.find_or_make(key(0), 1), Claim::Without));
    maker.write(b"x");
    maker.commit();
    assert!(matches!(second.find_or_make(key(0), 1), Claim::Found(_)));
    // One that was given up is made by the next, and nothing of it is left.
    drop(first.find_or_make(key(1), 1));
    assert!(put(&second, 1, b"y"));
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn an_unwritable_folder_switches_the_disk_cache_off_for_good() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    let below = folder.path().join("file/disk_cache");
    let disk_cache = disk_cache(&below, 1 << 20);
    assert!(disk_cache.fault().is_none());
    assert!(!put(&disk_cache, "a", b"x"));
    let fault = disk_cache.fault().unwrap();
    assert_eq!(fault.file(), below.to_str());
    fs::remove_file(folder.path().join("file")).unwrap();
    assert!(!put(&disk_cache, "a", b"x"), "it is off");
    assert_eq!(disk_cache.fault().unwrap().to_string(), fault.to_string());
    assert_eq!(disk_cache.counters().misses, 2);
}

#[test]
fn an_entry_that_cannot_be_put_in_its_place_is_told() {
    let folder = TempDir::new().unwrap();
    let disk_cache = disk_cache(folder.path(), 1 << 20);
    fs::create_dir(disk_cache.path(&key("a"))).unwrap();
    assert!(!put(&disk_cache, "a", b"x"));
    assert!(disk_cache.fault().is_some());
}

#[test]
fn leftovers_are_cleared_when_they_are_old_and_files_of_others_are_left_alone() {
    let folder = TempDir::new().unwrap();
    let disk_cache = disk_cache(folder.path(), 1 << 20);
    let entry = disk_cache.path(&key("a")).file_name().unwrap().to_str().unwrap().to_owned();
    let old = [
        format!(".{entry}.tmp-0123456789abcdef"),
        entry.replace("rdxt", "lock"),
        "notes.txt".into(),
        ".x.tmp-1".into(),
    ];
    let new = [format!(".{entry}.tmp-0000000000000000")];
    for name in old.iter().chain(&new) {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    for name in &old {
        let file = OpenOptions::new().write(true).open(folder.path().join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    }
    assert!(put(&disk_cache, "b", b"x"));
    let mut left = vec![new[0].clone(), ".x.tmp-1".into(), "notes.txt".into()];
    left.push(disk_cache.path(&key("b")).file_name().unwrap().to_str().unwrap().to_owned());
    left.sort();
    assert_eq!(names(folder.path()), left);
}
