//! What a description may say, and what is said of one that is wrong.

use super::*;

fn refused<T: DeserializeOwned>(text: &str) -> String {
    read::<T>("it", text.as_bytes()).err().unwrap().to_string()
}

/// What is said of a build whose files and output are right.
fn of_a_build(fields: &str) -> String {
    let text = format!(r#"{{"files": ["a"], "output": "b", {fields}}}"#);
    match read::<BuildDescription>("build", text.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(build) => build.builder().err().map_or_else(String::new, |error| error.to_string()),
    }
}

#[test]
fn a_wrong_field_is_refused_by_its_name() {
    for (fields, said) in [
        (r#""inputs": []"#, "build: unknown field `inputs`, expected one of `files`, `output`, "),
        (r#""threads": "two""#, "build: `threads`: invalid type: string \"two\", expected usize"),
        (r#""threads": -1"#, "build: `threads`: invalid value: integer `-1`, expected usize"),
        (r#""lengths": ["a", 5]"#, "build: `lengths[1]`: invalid type: integer `5`, expected a string"),
        (r#""root": "a\u0000b""#, "build: `root`: a path with a NUL"),
        (r#""schema": "loose""#, "use strict or union"),
        (r#""store": {"retrys": 3}"#, "build: unknown field `retrys`, expected one of `concurrency`, "),
        (r#""store": {"concurrency": 0}"#, "`concurrency` is 0"),
        (r#""store": {"deadline": 0}"#, "`deadline` of 0"),
    ] {
        assert!(of_a_build(fields).contains(said), "{}", of_a_build(fields));
    }
    assert_eq!(of_a_build(r#""rename": {"a": "b"}, "store": null, "threads": 2"#), "");
    let nowhere = read::<BuildDescription>("it", br#"{"files": ["a"]}"#).unwrap();
    assert!(nowhere.output().unwrap_err().to_string().contains("build: no `output`"));
    let found = read::<BuildDescription>("it", br#"{"files": ["a"], "find": "or_build"}"#).unwrap();
    assert_eq!(found.output().unwrap(), None);
    assert!(refused::<BuildDescription>("[").contains("it: "));
    assert!(refused::<StoreDescription>("{} {}").contains("it: trailing characters"));
}

#[test]
fn a_setting_of_a_store_is_in_no_message() {
    let said = of_a_build(r#""store": {"config": {"aws_secret_access_key": 123456}}"#);
    assert!(said.contains("`store.config.aws_secret_access_key` is no text") && !said.contains("123456"), "{said}");
    let said = of_a_build(r#""store": {"config": "123456"}"#);
    assert!(said.contains("`store.config` is no text") && !said.contains("123456"), "{said}");
}

#[test]
fn a_path_has_any_bytes() {
    let path: GivenPath = read("it", b"\"a\xff/b\"").unwrap();
    assert_eq!(path.as_ref().as_os_str().as_encoded_bytes(), b"a\xff/b");
    let path: GivenPath = read("it", br#""\u00e9""#).unwrap();
    assert_eq!(path.as_ref(), Path::new("é"));
}

#[test]
fn what_a_view_chooses_says_all_that_belongs_to_it() {
    for (fields, said) in [
        (r#""sample": {"seed": 3}"#, "it: `sample`: missing field `fraction`"),
        (r#""sample": 0.1"#, "it: `sample`: invalid type"),
        (r#""split": {"seed": 3}"#, "it: `split`: missing field `side`"),
        (r#""split": {"side": "train", "fraction": 0.5}"#, "it: unknown field `fraction`"),
        (r#""intersect": "a.rdx""#, "it: `intersect`: invalid type"),
    ] {
        let said_of_it = refused::<SelectDescription>(&format!(r#"{{"output": "v.rdx", {fields}}}"#));
        assert!(said_of_it.contains(said), "{said_of_it}");
    }
}

#[test]
fn a_step_of_a_rewrite_says_which_task_it_does() {
    let task = |fields: &str| {
        let text = format!(r#"{{"output": "a", {fields}}}"#);
        let task = read::<RewriteDescription>("it", text.as_bytes()).and_then(|described| described.task());
        task.map(|task| format!("{task:?}")).unwrap_or_else(|error| error.to_string())
    };
    for (fields, said) in [
        (r#""resume": true"#, "None"),
        (r#""step": "spill", "task": [1, 3]"#, "Some(Spill { task: 1, tasks: 3 })"),
        (r#""step": "write""#, "Some(Write { task: 0, tasks: 1 })"),
        (r#""step": "index""#, "Some(Index)"),
        (r#""step": "index", "task": [0, 1]"#, "the step `index` has no tasks"),
        (r#""task": [0, 1]"#, "`task` says nothing of the whole work"),
        (r#""step": "write", "resume": true"#, "`resume` and `overwrite` say nothing of one step"),
        (r#""step": "both""#, "unknown variant `both`, expected one of `spill`, `write`, `index`"),
        (r#""resume": "maybe""#, "it: `resume`: invalid type: string \"maybe\", expected a boolean"),
    ] {
        assert!(task(fields).contains(said), "{}", task(fields));
    }
}

/// Operands of Rust.
#[derive(Default)]
struct Numbers {
    row_ids: Vec<Vec<u64>>,
    weights: Vec<Vec<f64>>,
    labels: Vec<Vec<u32>>,
    sets: Vec<Arc<IdSet>>,
}

impl<'a> Operands<'a> for &'a Numbers {
    fn indexes(&self) -> &[Index] {
        &[]
    }

    fn row_ids(&self, number: usize) -> Result<&'a [u64]> {
        Ok(&self.row_ids[number])
    }

    fn weights(&self, number: usize) -> Result<&'a [f64]> {
        Ok(&self.weights[number])
    }

    fn labels(&self, number: usize) -> Result<&'a [u32]> {
        Ok(&self.labels[number])
    }

    fn set(&self, number: usize) -> Result<&'a Arc<IdSet>> {
        Ok(&self.sets[number])
    }
}

/// The name and the length of an order that is described over ten rows, or what is said of it.
fn order(fields: &str, given: &Numbers) -> String {
    let text = format!(r#"{{"rows": 10, {fields}}}"#);
    let orders = read::<OrderDescription>("order", text.as_bytes()).and_then(|described| described.orders(&given));
    orders.map_or_else(|error| error.to_string(), |orders| format!("{} of {}", orders.name(), orders.len()))
}

#[test]
fn every_order_is_described() {
    let given = Numbers {
        row_ids: vec![vec![3, 1]],
        weights: vec![vec![1.0; 10]],
        labels: vec![vec![0; 10]],
        sets: vec![Arc::new(IdSet::from_ids(10, [2, 5, 7]).unwrap())],
    };
    for (fields, said) in [
        (r#""seed": 1"#, "global of 10"),
        (r#""order": "torch", "size": 7"#, "resized of 7"),
        (r#""order": "global", "kept": 0"#, "subset of 3"),
        (r#""row_ids": 0"#, "explicit of 2"),
        (r#""weights": 0, "size": 50"#, "weighted of 50"),
        (r#""weights": 0, "replacement": false"#, "weighted of 10"),
        (r#""scored": [0, 3, 8], "paired": true"#, "paired of 10"),
        (r#""scored": [0, 3, 0]"#, "within 0 rows"),
        (r#""labels": 0, "proportions": [2]"#, "balanced of 10"),
        (r#""inner": {"order": "sequential"}, "shards": 2"#, "contiguous of 10"),
        (r#""order": "sequential", "rotated": true"#, "rotated of 10"),
        (r#""row_ids": 0, "permutation": true"#, "row id 0 is missing"),
        (r#""row_groups": [5, 5]"#, "indexes, `rows` and `row_groups` exclude each other"),
        (r#""row_ids": 0, "order": "global""#, "exclude each other"),
        (r#""inner": {"rows": 3}"#, "within another one has its own rows"),
        (r#""inner": {"sizes": 3}"#, "order: unknown field `sizes`"),
        (r#""parts": [{"seed": -1}]"#, "order: `parts[0].seed`: invalid value: integer `-1`, expected u64"),
    ] {
        assert!(order(fields, &given).contains(said), "{fields}: {}", order(fields, &given));
    }
    let none = read::<OrderDescription>("order", b"{}").unwrap().orders(&&given).err().unwrap();
    assert!(none.to_string().contains("no rows to order"), "{none}");
}

#[test]
fn a_set_is_described_in_one_way() {
    let given = Numbers {
        row_ids: vec![vec![3, 1, 3], vec![0, 2, 8, 9], vec![1]],
        sets: vec![Arc::new(IdSet::from_ids(10, [1, 2]).unwrap())],
        ..Numbers::default()
    };
    let set = |fields: &str| {
        let chosen = read::<SetDescription>("set", format!("{{{fields}}}").as_bytes())
            .and_then(|described| described.rows(&&given, None, None));
        chosen.map_or_else(
            |error| error.to_string(),
            |chosen| {
                let ids: Vec<u64> = (0..chosen.rows.len()).filter_map(|place| chosen.rows.select(place)).collect();
                format!("{ids:?}")
            },
        )
    };
    for (fields, said) in [
        (r#""row_ids": 0, "rows": 10"#, "[1, 3]"),
        (r#""ranges": 1, "rows": 10"#, "[0, 1, 8]"),
        (r#""ranges": 1, "rows": 10, "of": 0"#, "[1]"),
        (r#""row_ids": 0, "rows": 10, "union": 0, "complement": true"#, "[0, 4, 5, 6, 7, 8, 9]"),
        (r#""set": 0"#, "[1, 2]"),
        (r#""ranges": 2, "rows": 10"#, "a start without an end"),
        (r#""row_ids": 0"#, "`rows` is missing"),
        (r#""set": 0, "rows": 10"#, "`rows` says nothing"),
        (r#""set": 0, "row_ids": 0"#, "not just one of"),
        (r#""complement": true"#, "not just one of"),
        (r#""stream": true"#, "there is no stream"),
        (r#""where": "a > 1""#, "there is no dataset"),
        (r#""split": {"side": "train", "by": "a"}"#, "there is no dataset"),
        (r#""split": {"side": "test"}, "rows": 10"#, "no side of a split"),
    ] {
        assert!(set(fields).contains(said), "{fields}: {}", set(fields));
    }
}
