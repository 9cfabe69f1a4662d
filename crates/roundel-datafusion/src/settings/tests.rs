use super::*;
use http::HeaderValue;
use roundel_exchange::{Architecture, Design};

fn heard() -> Heard {
    let setting = Setting {
        architecture: Architecture::Multiplexer,
        design: Design::SemqSr,
        ..Setting::default()
    };
    let role = Role {
        join: 3,
        side: 1,
        spreads: true,
        samplers: 2,
        tasks: 4,
        expected: [None, Some(7)],
        place: "http://10.0.0.1:7070/".parse().expect("a URL"),
    };
    let stages = [(1, setting, None), (3, Setting::default(), Some(role))];
    let stages = stages.map(|(stage, setting, role)| (stage, StageSettings { setting, role }));
    Heard {
        fabric: Fabric::Shm,
        worker: "http://10.0.0.2:7070/".parse().expect("a URL"),
        settings: Arc::new(QuerySettings {
            setting,
            stages: stages.into(),
        }),
    }
}

#[test]
fn a_worker_hears_what_was_told() {
    let mut headers = HeaderMap::new();
    assert_eq!(Heard::of(&headers).expect("nothing"), None);
    heard().tell(&mut headers).expect("fits");
    let theirs = Heard::of(&headers).expect("as told").expect("something");
    assert_eq!(theirs, heard());
    let settings = theirs.settings;
    assert_eq!(settings.of_stage(3), Setting::default());
    assert_eq!(settings.of_stage(9).design, Design::SemqSr);
    assert!(settings.role_of(1).is_none() && settings.role_of(3).is_some());
}

#[test]
fn what_nobody_can_have_told_is_refused() {
    for text in ["", "!", "AAAA", "x=y;MEMQ/SR"] {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static(HEADER),
            HeaderValue::from_static(text),
        )]);
        assert!(Heard::of(&headers).is_err(), "{text}");
    }
    let mut many = heard();
    let one = many.settings.stages[&1].clone();
    let stages = (0..=STAGES_MAX).map(|stage| (stage, one.clone())).collect();
    Arc::make_mut(&mut many.settings).stages = stages;
    assert!(many.tell(&mut HeaderMap::new()).is_err());
}
