use proptest::prelude::*;

use super::*;
use crate::link::header::check_header;

fn control() -> impl Strategy<Value = Body> {
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(count, checksum)| {
            Body::EndOfStream(SequenceDigest { count, checksum })
        }),
        any::<(u32, u64)>().prop_map(|(credit, acknowledged)| {
            Body::Credit(Credit {
                credit,
                acknowledged,
            })
        }),
        any::<u64>().prop_map(Body::Acknowledge),
        any::<(u64, u64)>().prop_map(|(on_link, to_group)| Body::Sent(Sent { on_link, to_group })),
        any::<(u64, u64)>().prop_map(|(first, bitmap)| {
            let bitmap = bitmap | 1;
            Body::Missing(Missing { first, bitmap })
        }),
        any::<[u8; JOIN_BYTES]>().prop_map(Body::Join),
        Just(Body::Joined),
        Just(Body::Member),
        Just(Body::Leave),
        Just(Body::Abort),
        any::<(u64, u8)>().prop_map(|(number, step)| {
            let step = [Step::Done, Step::In, Step::Out, Step::At][usize::from(step % 4)];
            Body::Phase(Phase { number, step })
        }),
        any::<(u64, u64, bool)>().prop_map(|(number, rate, crowded)| {
            Body::Trial(Trial {
                number,
                rate,
                crowded,
            })
        }),
    ]
}

fn data() -> impl Strategy<Value = Body> {
    (1..=FRAME_LENGTH_MAX, any::<(u32, u32)>())
        .prop_flat_map(|(frame_length, ids)| (Just(frame_length), 0..frame_length, Just(ids)))
        .prop_flat_map(|(frame_length, offset, (frame_sequence, rows))| {
            (1..=frame_length - offset).prop_map(move |payload_length| {
                Body::Data(Data {
                    frame_sequence,
                    rows,
                    frame_length,
                    offset,
                    payload_length,
                })
            })
        })
}

fn header() -> impl Strategy<Value = Header> {
    (
        0..=FLAG_REPEATED,
        any::<(u16, u64, u32, u32, u64, u32)>(),
        prop_oneof![data(), control()],
    )
        .prop_map(
            |(flags, (group, exchange, source, partition, sequence, credit_seen), body)| Header {
                flags,
                group,
                exchange,
                source,
                partition,
                sequence,
                credit_seen,
                body,
            },
        )
}

proptest! {
    #[test]
    fn a_header_survives_the_wire(header in header()) {
        prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn any_bytes_parse_or_are_refused(
        bytes in proptest::collection::vec(any::<u8>(), HEADER_LENGTH),
        message in 0..130usize,
    ) {
        let _ = check_header(bytes.first_chunk().unwrap(), message);
    }

    /// A mutation is refused or changes a field to another legal value, which round-trips.
    #[test]
    fn a_mutated_header_is_refused_or_consistent(
        header in header(),
        mutations in proptest::collection::vec((0..HEADER_LENGTH, any::<u8>()), 1..4),
    ) {
        let mut bytes = header.emit();
        for (offset, byte) in mutations {
            bytes[offset] = byte;
        }
        if let Ok(parsed) = Header::parse(&bytes) {
            prop_assert_eq!(parsed.emit(), bytes);
        }
    }

    #[test]
    fn the_digest_ignores_order(
        mut messages in proptest::collection::vec(any::<(u16, u64)>(), 0..50),
    ) {
        let forward = digest(&messages);
        messages.reverse();
        prop_assert_eq!(forward, digest(&messages));
    }

    /// Also where the numbers end.
    #[test]
    fn missing_messages_are_those_whose_bits_are_set(first: u64, bitmap: u64) {
        for first in [first, u64::MAX - first % Missing::SPAN] {
            let expected: Vec<u64> = (0..64)
                .filter(|bit| bitmap & (1 << bit) != 0)
                .filter_map(|bit| first.checked_add(bit))
                .collect();
            let missing = Missing { first, bitmap };
            prop_assert_eq!(missing.sequences().collect::<Vec<_>>(), expected);
        }
    }
}

fn digest(messages: &[(u16, u64)]) -> SequenceDigest {
    let mut digest = SequenceDigest::default();
    for (group, sequence) in messages {
        digest.add(*group, *sequence);
    }
    digest
}

const DATA: Data = Data {
    frame_sequence: 3,
    rows: 9,
    frame_length: 100,
    offset: 60,
    payload_length: 40,
};

fn message(body: Body) -> Header {
    Header {
        flags: 0,
        group: 6,
        exchange: 7,
        source: 1,
        partition: 2,
        sequence: 5,
        credit_seen: 8,
        body,
    }
}

/// The layout is a promise between nodes: moving a field must bump the version.
#[test]
fn fields_are_where_the_documentation_says() {
    let bytes = Header {
        flags: FLAG_REPEATED,
        ..message(Body::Data(DATA))
    }
    .emit();
    let mut expected = [0u8; HEADER_LENGTH];
    expected[..6].copy_from_slice(&[b'R', b'D', 2, 0, 1, 1]);
    for (offset, byte) in [
        (6, 6),
        (8, 7),
        (16, 1),
        (20, 2),
        (24, 5),
        (32, 8),
        (36, 40),
        (40, 3),
        (44, 9),
        (48, 100),
        (52, 60),
    ] {
        expected[offset] = byte;
    }
    assert_eq!(bytes, expected);
}

#[test]
fn each_rule_has_its_error() {
    let good = message(Body::Data(DATA)).emit();
    let with = |offset: usize, byte: u8| {
        let mut bytes = good;
        bytes[offset] = byte;
        Header::parse(&bytes).unwrap_err()
    };
    assert!(matches!(with(0, 0), WireError::Magic(_)));
    assert_eq!(with(2, 9), WireError::Version(9));
    assert_eq!(with(4, 16), WireError::Kind(16));
    assert_eq!(
        with(4, 3),
        WireError::ControlPayload {
            kind: Kind::Credit,
            length: 40
        }
    );
    assert_eq!(with(5, 2), WireError::Flags(2));
    assert_eq!(with(63, 1), WireError::Reserved);
    assert_eq!(with(36, 0), WireError::EmptyFragment);
    assert!(matches!(
        with(36, 41),
        WireError::FragmentBounds {
            payload_length: 41,
            ..
        }
    ));
    assert!(matches!(with(55, 0xff), WireError::FragmentBounds { .. }));

    let mut long = good;
    long[48..52].copy_from_slice(&(FRAME_LENGTH_MAX + 1).to_le_bytes());
    assert!(matches!(
        Header::parse(&long),
        Err(WireError::FrameLength(_))
    ));

    let control = |body| message(body).emit();
    let mut phase = control(Body::Phase(Phase {
        number: 1,
        step: Step::At,
    }));
    phase[48] = 4;
    assert_eq!(Header::parse(&phase), Err(WireError::Step(4)));
    let mut trial = control(Body::Trial(Trial {
        number: 1,
        rate: 1,
        crowded: true,
    }));
    trial[56] = 2;
    assert_eq!(Header::parse(&trial), Err(WireError::Reserved));
    let credit = Credit {
        credit: 1,
        acknowledged: 2,
    };
    for (body, unused) in [
        (Body::Credit(credit), vec![44, 47, 56, 63]),
        (Body::Acknowledge(1), vec![48, 63]),
        (
            Body::Sent(Sent {
                on_link: 1,
                to_group: 1,
            }),
            vec![56, 63],
        ),
        (
            Body::Missing(Missing {
                first: 1,
                bitmap: 1,
            }),
            vec![56, 63],
        ),
        (
            Body::Phase(Phase {
                number: 1,
                step: Step::In,
            }),
            vec![56, 63],
        ),
        (
            Body::Trial(Trial {
                number: 1,
                rate: 1,
                crowded: false,
            }),
            vec![57, 63],
        ),
        (Body::Member, vec![40, 63]),
        (Body::Leave, vec![40, 63]),
        (Body::Abort, vec![40, 63]),
    ] {
        for offset in unused {
            let mut bytes = control(body);
            bytes[offset] = 1;
            assert_eq!(Header::parse(&bytes), Err(WireError::Reserved), "{body:?}");
        }
    }
    let nothing = control(Body::Missing(Missing {
        first: 1,
        bitmap: 2,
    }));
    assert_eq!(Header::parse(&nothing), Err(WireError::NothingMissing));
}

#[test]
fn the_payload_must_be_as_long_as_announced() {
    let header = message(Body::Data(DATA));
    let check = |message| check_header(&header.emit(), message);
    let announced = 40;
    let wrong = |found| Err(WireError::PayloadLength { announced, found });
    assert_eq!(check(63), Err(WireError::Truncated(63)));
    assert_eq!(check(64), wrong(0));
    assert_eq!(check(104), Ok(header));
    assert_eq!(check(105), wrong(41));
}

#[test]
fn the_digest_sees_loss_and_duplication() {
    let messages = |sequences: &[u64]| {
        let of_one = sequences.iter().map(|sequence| (0, *sequence));
        digest(&of_one.collect::<Vec<_>>())
    };
    let sent = messages(&[0, 1, 2, 3]);
    assert_ne!(sent, messages(&[0, 1, 2]));
    assert_ne!(sent, messages(&[0, 1, 2, 2]));
    assert_ne!(sent, messages(&[0, 1, 2, 3, 3]));
    assert_ne!(digest(&[(0, 1), (1, 0)]), digest(&[(0, 0), (1, 1)]));
}
