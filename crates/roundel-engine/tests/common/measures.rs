//! What EXPLAIN ANALYZE says, in numbers.

use roundel_engine::Session;

/// A statement's answer as text.
pub async fn text_of(session: &Session, sql: &str) -> String {
    let batches = crate::common::run(session, sql).await.expect("explains");
    crate::common::rows(&batches).join("\n")
}

/// The sum of a measure over a plan with measures.
pub fn sum_of(plan: &str, measure: &str) -> u64 {
    // Not that of a measure whose name ends alike.
    let named = [" ", "["].map(|before| format!("{before}{measure}="));
    let found = named.iter().flat_map(|name| plan.split(&**name).skip(1));
    found.map(number_of).sum()
}

/// A number as EXPLAIN ANALYZE writes it: 7, or 12.3 K.
pub fn number_of(text: &str) -> u64 {
    let end = text.find([',', ']', '}']).unwrap_or(text.len());
    let text = text[..end].trim();
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let unit = match unit {
        "K" => 1e3,
        "M" => 1e6,
        _ => 1.0,
    };
    (number.parse::<f64>().expect("a number") * unit) as u64
}
