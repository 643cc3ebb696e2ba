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
        (r#""slice": [1]"#, "build: `slice`: invalid length 1"),
        (r#""lengths": ["a", 5]"#, "build: `lengths[1]`: invalid type: integer `5`, expected a string"),
        (r#""parts": [{}]"#, "build: `parts[0]`: invalid type: map, expected a path"),
        (r#""root": "a\u0000b""#, "build: `root`: a path with a NUL"),
        (r#""schema": "loose""#, "use strict or union"),
        (r#""store": {"retrys": 3}"#, "build: unknown field `retrys`, expected one of `concurrency`, "),
        (r#""store": {"concurrency": 0}"#, "`concurrency` is 0"),
        (r#""store": {"deadline": 0}"#, "`deadline` of 0"),
    ] {
        assert!(of_a_build(fields).contains(said), "{}", of_a_build(fields));
    }
    assert_eq!(of_a_build(r#""rename": {"a": "b"}, "store": null, "threads": 2"#), "");
    assert!(refused::<BuildDescription>(r#"{"files": ["a"]}"#).contains("it: missing field `output`"));
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
        (r#""dictionary": "maybe""#, "it: `dictionary`: invalid type: string \"maybe\", expected a boolean"),
    ] {
        assert!(task(fields).contains(said), "{}", task(fields));
    }
}
