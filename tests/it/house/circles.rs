//! No module imports another that imports it, by whatever way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::sources::{code, exports, paths};
use super::{ROOT, files};

/// A module or an item by its path from the root of its package; the root is empty.
type Name = Vec<String>;

/// The modules of a package, and what is exported again.
struct Package {
    modules: BTreeMap<Name, String>,
    /// Where something lies that is found by another name, too.
    shown: HashMap<Name, Name>,
}

impl Package {
    /// Of these modules with their code.
    fn new(modules: BTreeMap<Name, String>) -> Self {
        let mut package = Self { modules, shown: HashMap::new() };
        let mut shown = HashMap::new();
        for (module, code) in &package.modules {
            for (path, name) in exports(code) {
                let target = package.absolute(module, &path);
                let name: Name = module.iter().chain([&name]).cloned().collect();
                // What comes from another package is of no module here.
                if package.lies_in(&target).is_some_and(|module| !module.is_empty()) {
                    shown.insert(name, target);
                }
            }
        }
        package.shown = shown;
        package
    }

    /// The path from the root for one that is written in this module.
    fn absolute(&self, module: &Name, path: &[String]) -> Name {
        let mut at = module.clone();
        for (place, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                // Without any of these it begins with a module below this one, or is of another package.
                _ if place > 0 || self.modules.contains_key(&[&at[..], &path[..1]].concat()) => at.push(name.clone()),
                _ => return path.to_vec(),
            }
        }
        at
    }

    /// The innermost module on the way to an item.
    fn lies_in(&self, item: &Name) -> Option<&Name> {
        let depths = (0..=item.len()).rev();
        depths.filter_map(|depth| self.modules.get_key_value(&item[..depth])).map(|(module, _)| module).next()
    }

    /// The module in which an item lies, wherever it is found.
    fn home(&self, mut item: Name) -> Option<&Name> {
        loop {
            let module = self.lies_in(&item)?;
            match item.get(..=module.len()).and_then(|name| self.shown.get(name)) {
                Some(target) => item = [&target[..], &item[module.len() + 1..]].concat(),
                None => return Some(module),
            }
        }
    }

    /// The modules that a module imports. Those around it and below it are parts of one and the same.
    fn imports(&self, module: &Name) -> BTreeSet<&Name> {
        let named = paths(&self.modules[module]).into_iter().map(|path| self.absolute(module, &path));
        let homes = named.filter_map(|item| self.home(item));
        homes.filter(|home| !home.starts_with(module) && !module.starts_with(home)).collect()
    }

    /// A shortest way along imports from each module that is in a circle back to it, one of each set of modules.
    fn circles(&self) -> Vec<String> {
        let imports: HashMap<&Name, BTreeSet<&Name>> =
            self.modules.keys().map(|module| (module, self.imports(module))).collect();
        let mut found = BTreeMap::new();
        for start in self.modules.keys() {
            let (mut ways, mut at, mut seen) = (vec![vec![start]], 0, BTreeSet::new());
            while let Some(way) = ways.get(at).cloned() {
                at += 1;
                for next in way.last().into_iter().flat_map(|last| &imports[*last]) {
                    let on = [&way[..], &[*next]].concat();
                    if *next == start {
                        let names: Vec<String> = on.iter().map(|module| module.join("::")).collect();
                        found.entry(way.iter().copied().collect::<BTreeSet<_>>()).or_insert(names.join(" -> "));
                        ways.clear();
                        break;
                    }
                    if seen.insert(*next) {
                        ways.push(on);
                    }
                }
            }
        }
        found.into_values().collect()
    }
}

/// The modules of a package by its folder of sources, without programs and tests.
fn modules(folder: &str) -> BTreeMap<Name, String> {
    let top = Path::new(ROOT).join(folder);
    let mut found = BTreeMap::new();
    for file in files(folder) {
        let path = file.strip_prefix(&top).unwrap().to_str().unwrap();
        let Some(path) = path.strip_suffix(".rs").filter(|path| !path.contains("tests") && !path.starts_with("bin/"))
        else {
            continue;
        };
        let mut module: Name = path.split('/').map(str::to_owned).collect();
        module.pop_if(|last| *last == "mod" || *last == "lib");
        found.insert(module, code(&fs::read_to_string(&file).unwrap()));
    }
    found
}

#[test]
fn no_modules_of_a_package_are_in_a_circle() {
    let crates = fs::read_dir(Path::new(ROOT).join("crates")).unwrap();
    let crates = crates.map(|entry| format!("crates/{}/src", entry.unwrap().file_name().to_str().unwrap()));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for folder in crates.chain(["src".to_owned()]) {
        let package = Package::new(modules(&folder));
        seen += package.modules.keys().map(|module| package.imports(module).len()).sum::<usize>();
        wrong.extend(package.circles().into_iter().map(|circle| format!("{folder}: {circle}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 300, "imports are not found: {seen}");
}

#[test]
fn a_circle_is_found_through_what_is_exported_again() {
    let circles = |sources: &[(&str, &str)]| {
        let module = |name: &str| name.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Package::new(sources.iter().map(|(name, source)| (module(name), code(source))).collect()).circles()
    };
    let root = ("", "mod a;\nmod b;\npub use b::{c::C as D, B};\npub(crate) use other::A;\nfn f() { a::f() }\n");
    let a = ("a", "use super::D;\n");
    let (b, c) = ("b", "pub(crate) mod c;\npub use self::c::C;\n");
    let circle = [root, a, (b, c), ("b::c", "use crate::{a::A, b::B};\nuse super::f;\n")];
    assert_eq!(circles(&circle), ["a -> b::c -> a"]);
    assert_eq!(circles(&[root, a, (b, c), ("b::c", "use crate::A;\n// crate::a::A\n")]), [""; 0]);
}
