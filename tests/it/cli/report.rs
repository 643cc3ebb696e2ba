//! The page about an index.

use std::fs;

use super::place::Place;
use crate::synthetic;

#[test]
fn a_page_tells_what_is_in_an_index_what_it_costs_and_what_is_odd() {
    let place = Place::with_data();
    place.run("build data -o train.rdx --lengths tags").succeeds();
    let text = place.run("info train.rdx --html report.html").succeeds().text();
    assert!(text.contains("1,003") && text.contains("half of the row groups"), "{text}");
    let page = fs::read_to_string(place.path("report.html")).unwrap();
    for words in ["score", "memory and passes", "peak held bytes", "lengths", "tags"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("http"), "the page needs the network");
    place.run("info train.rdx --html report.html").fails().complains(&["report.html", "exists"]);
    place.run("info train.rdx --html report.txt").fails().complains(&["report.txt", ".html at the end"]);
}

#[test]
fn a_page_of_many_row_groups_takes_no_walk_and_names_are_escaped() {
    let place = Place::new();
    fs::write(place.path("<b>&.rdx"), synthetic::index(1_000_000, 1000, None).unwrap()).unwrap();
    place.run("info <b>&.rdx --html report.html").succeeds();
    let page = fs::read_to_string(place.path("report.html")).unwrap();
    assert!(page.contains("&lt;b&gt;&amp;") && !page.contains("<b>") && !page.contains("memory and passes"));
}
