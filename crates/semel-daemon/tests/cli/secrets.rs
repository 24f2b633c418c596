//! Secrets stay secret: in no message, no log line and no finding, however the config is mistyped.

use std::time::Instant;

use crate::place::{Backend, Place, postgres_url};

const SECRET: &str = "hunter2";

fn place(ledger: &str) -> Place {
    let place = Place::new(Backend::Sqlite);
    place.write(
        "semel.toml",
        format!(
            "{ledger}\n[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
             [consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
        ),
    );
    place.write("ops.jsonl", "");
    place
}

#[track_caller]
fn assert_untold(place: &Place) {
    for command in [
        &["check"][..],
        &["check", "--connect"],
        &["run", "--until-idle"],
        &["migrate", "--dry-run"],
        &["dead", "list"],
    ] {
        // As much is logged as can be.
        for log in [None, Some("trace")] {
            let mut program = place.command(command);
            if let Some(log) = log {
                program.env("SEMEL_LOG", log);
            }
            let output = program.output().unwrap();
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8_lossy(&told);
            assert!(!told.contains(SECRET), "{command:?} {log:?}: {told}");
            assert!(
                !told.contains('\u{1b}'),
                "{command:?}: colours on a pipe: {told}"
            );
        }
    }
}

#[test]
fn a_mistyped_url_is_never_shown_with_its_password() {
    for url in [
        "postgres//u:hunter2@h/d",
        "u:hunter2@h/d",
        "postgres:u:hunter2@h/d",
        "postgres://u:hunter2",
        "mysql://u:x/hunter2@h/d",
        "mysql://u:hunter2/d",
        "postgres://u:p@h:hunter2/d",
        "sqlite:a.db?key=hunter2",
        "postgres://u@127.0.0.1:1/d?hunter2",
    ] {
        assert_untold(&place(&format!("[ledger]\nurl = \"{url}\"")));
    }
}

#[test]
fn a_url_in_a_wrong_place_of_the_config_is_not_shown() {
    for ledger in [
        "ledger = \"postgres://u:hunter2@h/d\"",
        "[ledger]\nurl = [\"postgres://u:hunter2@h/d\"]",
        "[ledger]\nurl = { fil = \"hunter2\" }",
        "[ledger]\nurl = \"postgres://u:hunter2@h/d",
        "[ledger]\nurl = \"sqlite:semel.db\"\nmigrate = \"postgres://u:hunter2@h/d\"",
        "[ledger]\nurl = \"sqlite:semel.db\"\nlock_timeout_ms = \"hunter2\"",
    ] {
        assert_untold(&place(ledger));
    }
}

#[test]
fn drivers_log_no_secret() {
    let (start, place_of) = postgres_url()
        .split_once('@')
        .map(|(start, place)| (start.to_owned(), place.to_owned()))
        .expect("the test's URL has a user");
    let user = start.rsplit('/').next().unwrap().split(':').next().unwrap();
    // A parameter that the driver does not know, and would log with its value.
    assert_untold(&place(&format!(
        "[ledger]\nurl = \"{}?pasword=hunter2\"",
        postgres_url()
    )));
    // A login that is refused.
    assert_untold(&place(&format!(
        "[ledger]\nurl = \"postgres://{user}:hunter2@{place_of}\""
    )));
    // A password file whose line the driver cannot read.
    let place = place(&format!("[ledger]\nurl = \"postgres://{user}@{place_of}\""));
    place.write("pgpass", "127.0.0.1:hunter2\n");
    let file = place.path().join("pgpass");
    let mut mode = std::fs::metadata(&file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    for log in ["", "trace"] {
        let mut program = place.command(&["dead", "list"]);
        program.env("PGPASSFILE", &file).env("SEMEL_LOG", log);
        let output = program.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!told.contains(SECRET), "{told}");
    }
}

#[test]
fn a_brokers_login_is_not_logged() {
    let url = std::env::var("SEMEL_TEST_RABBITMQ_URL")
        .expect("SEMEL_TEST_RABBITMQ_URL is not set: run scripts/test");
    let (_, at) = url.split_once('@').expect("the test's URL has a user");
    let place = Place::new(Backend::Sqlite);
    place.config(&format!(
        "[sources.bets]\ntype = \"rabbitmq\"\nurl = \"amqp://semel:hunter2@{at}\"\nqueue = \"q\"\n\
         [consumers.wallet]\nsources = [\"bets\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
    ));
    assert_untold(&place);
    place.config(&format!(
        "[sources.bets]\ntype = \"rabbitmq\"\nurl = \"semel:hunter2@{at}\"\nqueue = \"q\"\n\
         [consumers.wallet]\nsources = [\"bets\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
    ));
    assert_untold(&place);
}

#[test]
fn a_secrets_command_that_hangs_is_killed_and_told() {
    // Also one that leaves its output to a child and ends.
    for command in [
        "exec sleep 60",
        "sleep 60 2>/dev/null & exit 0",
        "exec 1>/dev/null; exec sleep 60",
    ] {
        let place = place(&format!(
            "[ledger]\nurl = {{ command = [\"sh\", \"-c\", \"{command}\"], timeout_ms = 300 }}"
        ));
        let started = Instant::now();
        let ran = place.semel(&["dead", "list"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("did not end within 300 ms"), "{}", ran.err);
        assert!(started.elapsed().as_secs() < 50, "it was waited for");
    }
}
