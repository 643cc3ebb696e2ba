//! What the environment says of the hub: where it is, who asks, and whether anybody may be asked.
//!
//! The variables are those of Hugging Face's own library. A token comes from the environment or from its file, and from
//! nowhere else: what a program sets by name may be pickled, logged and sent to workers.

use std::path::PathBuf;

use reqwest::Url;
use reqwest::header::HeaderValue;

use super::hub_fault::HubFault;
use crate::source::StoreOptions;

const ENDPOINT: &str = "https://huggingface.co";

/// How the hub is asked.
pub(super) struct HubSettings {
    /// Without a slash at its end.
    pub(super) endpoint: String,
    /// `Bearer …`
    pub(super) token: Option<HeaderValue>,
    pub(super) offline: bool,
}

impl HubSettings {
    /// From options, and for what they do not say from the environment.
    pub(super) fn of(options: &StoreOptions) -> Result<Self, HubFault> {
        let own = |name: &str| options.config.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = |name: &str| match own(name) {
            Some((_, value)) => Some(value.clone()),
            None => std::env::var(name).ok(),
        };
        let text = |name: &str| value(name).filter(|value| !value.is_empty());
        if TOKENS.iter().any(|name| own(name).is_some()) {
            return Err(HubFault::Misread("a token is taken from the environment only: set HF_TOKEN"));
        }
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned()).trim_end_matches('/').to_owned();
        let at = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(at) = at.filter(|url| url.username().is_empty() && url.password().is_none() && url.query().is_none())
        else {
            return Err(HubFault::Misread("HF_ENDPOINT is no URL of a server"));
        };
        // A file that is named here goes before a token in the environment.
        let named = own("HF_TOKEN_PATH").is_some() || own("HF_HOME").is_some();
        let token = TOKENS.iter().filter(|_| !named).find_map(|name| text(name));
        let token = token.or_else(|| std::fs::read_to_string(token_file(&text)?).ok());
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let token = match token.filter(|_| !truth(text("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
            None => None,
            Some(_) if at.scheme() == "http" && !is_here(&at) => return Err(HubFault::Open),
            Some(token) => {
                let unfit = |_| HubFault::Misread("the token has characters that no token has: check HF_TOKEN");
                let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(unfit)?;
                header.set_sensitive(true);
                Some(header)
            }
        };
        Ok(Self { endpoint, token, offline: truth(text("HF_HUB_OFFLINE")) })
    }
}

const TOKENS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// Where a login leaves the token.
fn token_file(text: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(path) = text("HF_TOKEN_PATH") {
        return Some(PathBuf::from(path));
    }
    let home = text("HF_HOME").map(PathBuf::from);
    let cache =
        || text("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(text("HOME")?).join(".cache")));
    Some(home.or_else(|| Some(cache()?.join("huggingface")))?.join("token"))
}

/// Whether a server is on this machine, where nobody listens on the way.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A flag, as Hugging Face's library reads it.
fn truth(value: Option<String>) -> bool {
    value.is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_ascii_uppercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &[(&str, &str)]) -> Result<HubSettings, HubFault> {
        let none = StoreOptions::default().with_config("hf_home", "/there/is/no/such/folder");
        HubSettings::of(&config.iter().fold(none, |options, (name, value)| options.with_config(*name, *value)))
    }

    #[test]
    fn a_token_goes_to_a_server_with_encryption_or_to_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, " hf_canary\n").unwrap();
        let with = |endpoint: &str| {
            settings(&[("hf_token_path", file.to_str().unwrap()), ("hf_endpoint", endpoint)]).map(|found| found.token)
        };
        for endpoint in ["https://host/hub", "http://localhost:9", "http://127.0.0.1:9/", "http://[::1]:9"] {
            let token = with(endpoint).unwrap().unwrap();
            assert_eq!(token.to_str().unwrap(), "Bearer hf_canary");
            assert!(!format!("{token:?}").contains("canary"));
        }
        for endpoint in ["http://host", "http://localhost.host:9", "http://10.0.0.1"] {
            assert_eq!(with(endpoint).unwrap_err(), HubFault::Open, "{endpoint}");
        }
        assert!(settings(&[("hf_endpoint", "http://host")]).unwrap().token.is_none());
        for endpoint in ["host", "ftp://host", "http://user:canary@host", "http://host?canary"] {
            assert!(matches!(with(endpoint), Err(HubFault::Misread(_))), "{endpoint}");
        }
    }

    #[test]
    fn a_token_that_a_program_sets_is_refused() {
        for name in ["hf_token", "HUGGING_FACE_HUB_TOKEN"] {
            let told = settings(&[(name, "canary")]).err().unwrap();
            assert!(matches!(told, HubFault::Misread(_)) && !format!("{told}").contains("canary"));
        }
    }

    #[test]
    fn the_endpoint_is_the_public_one_unless_it_is_set() {
        assert_eq!(settings(&[("hf_endpoint", "")]).unwrap().endpoint, ENDPOINT);
        assert_eq!(settings(&[("hf_endpoint", "https://host/hub/")]).unwrap().endpoint, "https://host/hub");
        for (text, offline) in [("1", true), ("yes", true), ("0", false), ("", false), ("false", false)] {
            assert_eq!(settings(&[("hf_hub_offline", text)]).unwrap().offline, offline, "{text}");
        }
    }
}
