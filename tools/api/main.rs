//! Writes the public Rust API as text, `tests/data/api/rust.txt`, so that a review shows what a change does to it. With
//! `--check`, fails if that is not what is there.
//!
//! It lists what is `pub`, module by module, without bodies and private fields. Of the package itself that is what
//! users can reach, because the lint `unreachable_pub` refuses the word elsewhere. Of the packages below it users reach
//! what `rowdex` exports again, less what is hidden from the documentation.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use syn::{Attribute, Block, Field, Fields, ImplItem, Item, Stmt, TraitItem, Type, UseTree, Visibility};

const SNAPSHOT: &str = "tests/data/api/rust.txt";

/// Attributes that say something to users.
fn public_attributes(attributes: &mut Vec<Attribute>) {
    attributes.retain(|attribute| {
        ["cfg", "deprecated", "derive", "must_use", "non_exhaustive"].iter().any(|name| attribute.path().is_ident(name))
    });
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// Whether the documentation leaves it out: it is there for the other packages.
fn is_hidden(attributes: &[Attribute]) -> bool {
    let says = |attribute: &Attribute| attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("hidden"));
    attributes.iter().any(|attribute| attribute.path().is_ident("doc") && says(attribute))
}

fn public_fields(fields: &mut Fields) {
    let keep = |field: &mut Field| {
        let keep = is_public(&field.vis) && !is_hidden(&field.attrs);
        public_attributes(&mut field.attrs);
        keep
    };
    match fields {
        Fields::Named(named) => {
            named.named =
                std::mem::take(&mut named.named).into_iter().filter_map(|mut f| keep(&mut f).then_some(f)).collect();
        }
        Fields::Unnamed(unnamed) => {
            let kept = std::mem::take(&mut unnamed.unnamed).into_iter();
            unnamed.unnamed = kept.filter_map(|mut f| keep(&mut f).then_some(f)).collect();
        }
        Fields::Unit => {}
    }
}

fn empty() -> Block {
    Block { brace_token: syn::token::Brace::default(), stmts: Vec::<Stmt>::new() }
}

/// The type that an `impl` is for, if it has a plain name.
fn name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// What users see of an item; `types` are the public ones of the crate.
fn public(item: Item, types: &HashSet<String>) -> Option<Item> {
    match item {
        Item::Const(mut item) if is_public(&item.vis) => {
            public_attributes(&mut item.attrs);
            Some(Item::Const(item))
        }
        Item::Enum(mut item) if is_public(&item.vis) => {
            public_attributes(&mut item.attrs);
            item.variants.iter_mut().for_each(|variant| {
                public_attributes(&mut variant.attrs);
                for field in &mut variant.fields {
                    public_attributes(&mut field.attrs);
                }
            });
            Some(Item::Enum(item))
        }
        Item::Fn(mut item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
            public_attributes(&mut item.attrs);
            *item.block = empty();
            Some(Item::Fn(item))
        }
        Item::Impl(mut item)
            if !is_test(&item.attrs) && name(&item.self_ty).is_some_and(|name| types.contains(&name)) =>
        {
            public_attributes(&mut item.attrs);
            if item.trait_.is_some() {
                item.items.retain(|item| matches!(item, ImplItem::Type(_)));
                return Some(Item::Impl(item));
            }
            item.items.retain_mut(|item| match item {
                ImplItem::Const(item) => {
                    public_attributes(&mut item.attrs);
                    is_public(&item.vis)
                }
                ImplItem::Fn(item) => {
                    let keep = is_public(&item.vis) && !is_hidden(&item.attrs);
                    public_attributes(&mut item.attrs);
                    item.block = empty();
                    keep
                }
                _ => false,
            });
            (!item.items.is_empty()).then_some(Item::Impl(item))
        }
        Item::Mod(mut item) if is_public(&item.vis) && !is_test(&item.attrs) => {
            public_attributes(&mut item.attrs);
            item.content = item.content.map(|(brace, items)| (brace, all_public(items, types)));
            Some(Item::Mod(item))
        }
        Item::Struct(mut item) if is_public(&item.vis) => {
            public_attributes(&mut item.attrs);
            public_fields(&mut item.fields);
            Some(Item::Struct(item))
        }
        Item::Trait(mut item) if is_public(&item.vis) => {
            public_attributes(&mut item.attrs);
            for item in &mut item.items {
                match item {
                    TraitItem::Fn(item) => {
                        public_attributes(&mut item.attrs);
                        // That there is a default is a part of the API; what it does is not.
                        item.default = item.default.as_ref().map(|_| empty());
                    }
                    TraitItem::Const(item) => public_attributes(&mut item.attrs),
                    TraitItem::Type(item) => public_attributes(&mut item.attrs),
                    _ => {}
                }
            }
            Some(Item::Trait(item))
        }
        Item::Type(mut item) if is_public(&item.vis) => {
            public_attributes(&mut item.attrs);
            Some(Item::Type(item))
        }
        Item::Use(mut item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
            public_attributes(&mut item.attrs);
            Some(Item::Use(item))
        }
        _ => None,
    }
}

/// The names of the public types among items.
fn types(items: &[Item]) -> impl Iterator<Item = String> {
    items.iter().filter_map(|item| match item {
        Item::Enum(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        Item::Struct(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        Item::Type(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        _ => None,
    })
}

fn all_public(items: Vec<Item>, types: &HashSet<String>) -> Vec<Item> {
    items.into_iter().filter_map(|item| public(item, types)).collect()
}

/// `order::global` of `order/global.rs`.
fn module(path: &Path) -> String {
    let path = path.with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !matches!(*part, "mod" | "lib")).collect();
    parts.join("::")
}

/// The source files of a package, by their modules; not those of the command, of the C API and of tests.
fn sources(src: &Path) -> Result<Vec<(String, Vec<Item>)>, String> {
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(src).sort_by_file_name() {
        let path: PathBuf = entry.map_err(|error| error.to_string())?.into_path();
        let relative = path.strip_prefix(src).map_err(|error| error.to_string())?;
        let elsewhere = ["bin", "capi", "command"].iter().any(|folder| relative.starts_with(folder));
        if elsewhere || path.extension().is_none_or(|kind| kind != "rs") || path.ends_with("tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = syn::parse_file(&source).map_err(|error| format!("{}: {error}", path.display()))?;
        files.push((module(relative), file.items));
    }
    Ok(files)
}

/// The names that a `use` ends in.
fn leaves(tree: &UseTree, found: &mut HashSet<String>) {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, found),
        UseTree::Name(name) => drop(found.insert(name.ident.to_string())),
        UseTree::Rename(name) => drop(found.insert(name.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, found)),
        UseTree::Glob(_) => {}
    }
}

/// What items export again of the packages below: names by package.
fn exported(items: &[Item], found: &mut HashMap<String, HashSet<String>>) {
    for item in items {
        match item {
            Item::Mod(item) if is_public(&item.vis) => {
                if let Some((_, items)) = &item.content {
                    exported(items, found);
                }
            }
            Item::Use(item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
                if let UseTree::Path(path) = &item.tree
                    && let Some(package) = path.ident.to_string().strip_prefix("rowdex_")
                {
                    leaves(&path.tree, found.entry(package.to_owned()).or_default());
                }
            }
            _ => {}
        }
    }
}

/// The name that an item is known by.
fn known_by(item: &Item) -> Option<String> {
    match item {
        Item::Const(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        Item::Fn(item) => Some(item.sig.ident.to_string()),
        Item::Impl(item) => name(&item.self_ty),
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Trait(item) => Some(item.ident.to_string()),
        Item::Type(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

fn api() -> Result<String, String> {
    let mut files = sources(Path::new("src"))?;
    let mut exports = HashMap::new();
    files.iter().for_each(|(_, items)| exported(items, &mut exports));
    let mut packages: Vec<_> = exports.into_iter().collect();
    packages.sort_by(|a, b| a.0.cmp(&b.0));
    for (package, names) in packages {
        for (module, mut items) in sources(&Path::new("crates").join(&package).join("src"))? {
            // A module that is exported is exported whole.
            if !names.contains(module.split("::").next().unwrap_or_default()) {
                items.retain(|item| known_by(item).is_some_and(|name| names.contains(&name)));
            }
            let separator = if module.is_empty() { "" } else { "::" };
            files.push((format!("rowdex_{package}{separator}{module}"), items));
        }
    }
    let public_types: HashSet<String> = files.iter().flat_map(|(_, items)| types(items)).collect();
    let mut text =
        String::from("// The public API of the crate, written by tools/api.sh. Read its diff in a review.\n");
    for (module, items) in files {
        let items = all_public(items, &public_types);
        if !items.is_empty() {
            let file = syn::File { shebang: None, attrs: Vec::new(), items };
            let module = if module.is_empty() { "the crate" } else { &module };
            write!(text, "\n// {module}\n{}", prettyplease::unparse(&file)).map_err(|error| error.to_string())?;
        }
    }
    Ok(text)
}

fn main() -> ExitCode {
    let check = env::args().any(|argument| argument == "--check");
    let told = api().and_then(|text| {
        if !check {
            return fs::write(SNAPSHOT, text).map_err(|error| format!("{SNAPSHOT}: {error}"));
        }
        let there = fs::read_to_string(SNAPSHOT).map_err(|error| format!("{SNAPSHOT}: {error}"))?;
        if there == text {
            return Ok(());
        }
        Err(format!("{SNAPSHOT} is not what the sources say: run tools/api.sh, and look at its diff"))
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(told) => {
            eprintln!("{told}");
            ExitCode::FAILURE
        }
    }
}
