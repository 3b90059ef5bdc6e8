"""The tables of deployments: deployments, host names, revisions, replicas, rollouts, runtime variants, tokens and
what they used, tickets, rules of scaling with the queries that they may name, and events.

Used by endpoints, hostworker, notifications, operations, pages, scheduler and specs.
"""

from deployments.models.deployment import (
    DEPLOYMENT_NAME,
    MAX_NAME_LENGTH,
    Deployment,
    DeploymentEvent,
    DeploymentQuerySet,
    DeploymentState,
)
from deployments.models.host import MAX_HOST_NAME_LENGTH, DeploymentHost
from deployments.models.replica import Replica, ReplicaHealth, ReplicaQuerySet
from deployments.models.revision import HealthKind, Revision, RevisionMount
from deployments.models.rollout import RolloutSettings, RolloutStrategy, StepwiseRollout, default_canary_steps
from deployments.models.scaling import (
    MAX_QUERY_NAME_LENGTH,
    PrometheusQuery,
    ScalingMetric,
    ScalingRule,
    ScalingSettings,
    SleepAction,
)
from deployments.models.tokens import (
    TOKEN_PREFIX,
    DeploymentTicket,
    DeploymentToken,
    DeploymentTokenQuerySet,
    TokenUsage,
)
from deployments.models.variant import RuntimeVariant
