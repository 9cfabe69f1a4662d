use super::*;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::NullEquality;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion_distributed::NetworkCoalesceExec;

type Plan = Arc<dyn ExecutionPlan>;

const PARTITIONS: usize = 2;

/// Two columns, shuffled by one of them.
fn input(names: [&str; 2], key: &str) -> Plan {
    let fields = names.map(|name| Field::new(name, DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let empty: Plan = Arc::new(EmptyExec::new(schema));
    shuffled(empty, key)
}

fn shuffled(plan: Plan, key: &str) -> Plan {
    let hash = Partitioning::Hash(vec![col(key, &plan.schema()).unwrap()], PARTITIONS);
    let head: Plan = Arc::new(RepartitionExec::try_new(plan, hash).unwrap());
    Arc::new(NetworkShuffleExec::try_new(head, 3).unwrap())
}

fn join_of(left: Plan, right: Plan, join_type: JoinType, mode: PartitionMode) -> Plan {
    let key = |side: &Plan, name| col(name, &side.schema()).unwrap();
    let on = vec![(key(&left, "a"), key(&right, "c"))];
    let nulls = NullEquality::NullEqualsNothing;
    let join =
        HashJoinExec::try_new(left, right, on, None, &join_type, None, mode, nulls, false).unwrap();
    Arc::new(join)
}

fn join(join_type: JoinType) -> Plan {
    let sides = (input(["a", "b"], "a"), input(["c", "d"], "c"));
    join_of(sides.0, sides.1, join_type, PartitionMode::Partitioned)
}

/// As a stage of several tasks whose rows are collected.
fn collected(stage: Plan) -> Plan {
    let gathered = NetworkCoalesceExec::try_new(stage, 2, 1).unwrap();
    Arc::new(CoalescePartitionsExec::new(Arc::new(gathered)))
}

fn found(plan: Plan) -> SkewedJoins {
    let live = ["http://a:1/", "http://b:2/"].map(|url| url.parse().unwrap());
    find(&plan, &live)
}

fn spread(found: &SkewedJoins) -> Vec<bool> {
    found.roles.iter().map(|(_, role)| role.spreads).collect()
}

#[test]
fn rows_are_spread_of_the_side_whose_unmatched_rows_may_count() {
    let cases = [
        (JoinType::Inner, Some([true, true])),
        (JoinType::Left, Some([true, false])),
        (JoinType::LeftSemi, Some([true, false])),
        (JoinType::LeftAnti, Some([true, false])),
        (JoinType::LeftMark, Some([true, false])),
        (JoinType::Right, Some([false, true])),
        (JoinType::RightSemi, Some([false, true])),
        (JoinType::RightAnti, Some([false, true])),
        (JoinType::RightMark, Some([false, true])),
        (JoinType::Full, None),
    ];
    for (join_type, expected) in cases {
        let found = found(collected(join(join_type)));
        let expected = expected.map_or(Vec::new(), |sides| sides.to_vec());
        assert_eq!(spread(&found), expected, "{join_type}: {found}");
        assert_eq!(found.told.len(), 1, "{join_type}");
        for (_, role) in &found.roles {
            let samplers = 3 * expected.iter().filter(|spreads| **spreads).count();
            assert_eq!((role.samplers, role.tasks), (samplers as u64, 6));
        }
    }
}

#[test]
fn other_joins_are_left_alone() {
    let (left, right) = (input(["a", "b"], "a"), input(["c", "d"], "c"));
    let broadcast = join_of(left, right, JoinType::Inner, PartitionMode::CollectLeft);
    let (left, right) = (input(["a", "b"], "b"), input(["c", "d"], "d"));
    let other_keys = join_of(left, right, JoinType::Inner, PartitionMode::Partitioned);
    for plan in [broadcast, other_keys] {
        let found = found(collected(plan));
        assert!(found.roles.is_empty() && found.told.is_empty(), "{found}");
    }
    // Of one task, whose node has all rows in any case.
    let found = found(join(JoinType::Inner));
    assert!(found.roles.is_empty(), "{found}");
}

fn aggregate(mode: AggregateMode, input: Plan, key: &str) -> Plan {
    let schema = input.schema();
    let group = PhysicalGroupBy::new_single(vec![(col(key, &schema).unwrap(), key.to_owned())]);
    Arc::new(AggregateExec::try_new(mode, group, vec![], vec![], input, schema).unwrap())
}

#[test]
fn rows_stay_where_what_is_above_relies_on_it() {
    let relying = [
        aggregate(AggregateMode::SinglePartitioned, join(JoinType::Inner), "a"),
        aggregate(AggregateMode::FinalPartitioned, join(JoinType::Inner), "a"),
        // With a projection in between, which keeps the key.
        {
            let join = join(JoinType::Inner);
            let key = (col("a", &join.schema()).unwrap(), "k".to_owned());
            let projection: Plan = Arc::new(ProjectionExec::try_new(vec![key], join).unwrap());
            aggregate(AggregateMode::SinglePartitioned, projection, "k")
        },
        // Another join by the same key.
        join_of(
            join(JoinType::Left),
            input(["c", "d"], "c"),
            JoinType::Inner,
            PartitionMode::Partitioned,
        ),
    ];
    for plan in relying {
        let found = found(collected(plan));
        assert!(found.roles.is_empty(), "{found}");
        assert!(found.to_string().contains("what is above"), "{found}");
    }
}

#[test]
fn a_shuffle_above_makes_rows_free() {
    let partial = aggregate(AggregateMode::Partial, join(JoinType::Inner), "a");
    let shuffled = shuffled(partial, "a");
    let last = aggregate(AggregateMode::FinalPartitioned, shuffled, "a");
    let found = found(collected(last));
    assert_eq!(spread(&found), [true, true], "{found}");
}

#[test]
fn each_stage_of_a_join_has_its_role() {
    let found = found(collected(join(JoinType::Left)));
    // Stages are not numbered before the whole query is planned: both are 0 here.
    assert_eq!(found.role_of(0), Some(&found.roles[0].1));
    assert_eq!(found.role_of(7), None);
}
