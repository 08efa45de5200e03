//! Writes to NodePools.

use serde_json::json;

use super::{ActuateError, Actuator, Done};
use crate::{
    api::{Condition, NodePool, hash, names::annotation},
    cluster::Event,
    plan::Action,
    units::Resources,
};

/// A pool's status is written at most this often; a burst of new nodes is one write.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

impl Actuator {
    pub(super) async fn pool_status(
        &self,
        name: &str,
        conditions: &[Condition],
        resources: &Resources,
        nodes: i64,
        hash: &str,
    ) -> Result<Done, ActuateError> {
        let snapshot = self.writer.snapshot();
        let pool = snapshot
            .pools
            .get(name)
            .ok_or_else(|| ActuateError::Unknown(format!("nodepool {name}")))?;
        let held = pool.object.metadata.annotations.iter().flatten();
        if !held
            .clone()
            .any(|(k, v)| k == annotation::NODEPOOL_HASH && v == hash)
        {
            let annotations = json!({
                annotation::NODEPOOL_HASH: hash,
                annotation::NODEPOOL_HASH_VERSION: hash::POOL_HASH_VERSION,
            });
            let patch = json!({ "metadata": { "annotations": annotations } });
            let pool: NodePool = self
                .merge("writing a pool's hash", &self.pools(), name, &patch)
                .await?;
            self.writer.put(vec![Event::Pool(Box::new(pool))]).await;
        }
        let quantities = resources.to_quantities();
        let status = json!({ "status": { "conditions": conditions, "resources": quantities, "nodes": nodes } });
        let pool: NodePool = self
            .merge_status("writing a pool's status", &self.pools(), name, &status)
            .await?;
        self.writer.put(vec![Event::Pool(Box::new(pool))]).await;
        Ok(Done::Again(LOOK_AGAIN))
    }

    /// Advise mode: what a write would leave is put into the cluster state only, as far as later decisions need it.
    pub async fn assume(&self, action: &Action) {
        let Action::PoolStatus {
            pool, conditions, ..
        } = action
        else {
            return;
        };
        if let Some(known) = self.writer.snapshot().pools.get(pool) {
            let mut object = NodePool::clone(&known.object);
            object
                .status
                .get_or_insert_default()
                .conditions
                .clone_from(conditions);
            self.writer
                .put(vec![Event::AssumedPool(Box::new(object))])
                .await;
        }
    }
}
