//! Writing status as the cluster's own components do.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Puts a condition in place of the one of its type. The transition time stays while the status does.
pub(super) fn set_condition(status: &mut Value, mut condition: Value, now: Timestamp) {
    if !status.is_object() {
        *status = Value::Object(Map::new());
    }
    let list = &mut status["conditions"];
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    let old = list.iter_mut().find(|c| c["type"] == condition["type"]);
    let kept = old
        .as_ref()
        .filter(|old| old["status"] == condition["status"] && old["lastTransitionTime"].is_string())
        .map(|old| old["lastTransitionTime"].clone());
    condition["lastTransitionTime"] = kept.unwrap_or_else(|| json!(rfc3339(now)));
    match old {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

/// A time as the API writes it.
pub(super) fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_alone() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut status = Value::Null;
        let ready = |is: &str, why: &str| json!({"type": "Ready", "status": is, "reason": why});
        set_condition(&mut status, ready("False", "a"), at(0));
        set_condition(&mut status, ready("False", "b"), at(60));
        let transition = |status: &Value| status["conditions"][0]["lastTransitionTime"].clone();
        assert_eq!(status["conditions"][0]["reason"], "b");
        assert_eq!(transition(&status), "1970-01-01T00:00:00Z");
        set_condition(&mut status, ready("True", "c"), at(60));
        assert_eq!(transition(&status), "1970-01-01T00:01:00Z");
        assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
    }
}
