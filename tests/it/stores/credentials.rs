//! Without credentials, and with the service that gives them out of order: said at once, and what to do.

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use rowdex::IndexBuilder;
use rowdex::source::StoreOptions;
use tempfile::TempDir;

use super::http::{Abilities, Http};

/// The command that is to index `url`, without any setting of a store.
fn command(url: &str, home: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowdex"));
    command.args(["build", url, "-o", "i.rdx"]).current_dir(home.path()).stdin(Stdio::null()).env("HOME", home.path());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let given = ["AWS_", "GOOGLE_", "AZURE_", "IDENTITY_", "MSI_", "SERVICE_ACCOUNT"];
        if given.iter().any(|given| text.starts_with(given)) || text.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command
}

/// What it says without credentials, where `service` stands for the machine's own that gives them.
fn said(url: &str, service: SocketAddr, home: &TempDir) -> String {
    let mut command = command(url, home);
    command.env("AWS_METADATA_ENDPOINT", format!("http://{service}"));
    command.env("GCE_METADATA_HOST", service.to_string()).env("GCE_METADATA_IP", service.to_string());
    command.env("AZURE_MSI_ENDPOINT", format!("http://{service}/token")).env("AZURE_STORAGE_ACCOUNT_NAME", "account");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn without_credentials_it_is_said_which_to_set() {
    let home = TempDir::new().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Machines that have such a service, and no role in it.
    let empty = Http::start(home.path(), Abilities { ranges: true, tags: true });
    for (service, answer) in [(nobody, "no service of this machine gives any"), (empty.address, "HTTP status 40")] {
        for (url, variable) in [
            ("s3://a/b/", "AWS_ACCESS_KEY_ID"),
            ("gs://a/b/", "GOOGLE_APPLICATION"),
            ("az://a/b/", "AZURE_STORAGE_ACC"),
        ] {
            let said = said(url, service, &home);
            let words = ["there are no credentials for the store", answer, variable];
            assert!(words.iter().all(|word| said.contains(word)) && said.contains("SKIP_SIGNATURE"), "{url}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn credentials_that_do_not_come_are_waited_for_until_the_deadline_and_no_longer() {
    let folder = TempDir::new().unwrap();
    // It takes connections, and answers none.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = format!("http://{}", silent.local_addr().unwrap());
    let options = managed(&service).with_deadline(Duration::from_millis(500));
    let builder = IndexBuilder::new(["az://a/b/"]).with_store_options(options);
    let error = builder.build(folder.path().join("i.rdx")).unwrap_err();
    assert!(error.to_string().contains("there are no credentials for the store"), "{error}");
}

/// What asks this service, whatever the environment has.
fn managed(service: &str) -> StoreOptions {
    StoreOptions::default()
        .with_config("azure_storage_account_name", "account")
        .with_config("azure_credential_type", "managed_identity")
        .with_config("azure_msi_endpoint", service)
}

#[test]
fn an_azure_account_that_is_not_named_is_asked_for() {
    let home = TempDir::new().unwrap();
    let mut command = command("az://container/", &home);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("not understood") && said.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{said}");
}
