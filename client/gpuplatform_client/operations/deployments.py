"""The operations of the API on deployments as values, without I/O; see `operations`."""

from typing import Any

from gpuplatform_client.http.api_requests import (
    FIRST_PAGE,
    ApiOperation,
    ApiStream,
    ResultPage,
    body_of,
    idempotency_key,
    nothing,
    one,
    page,
    path_part,
    text,
)
from gpuplatform_client.http.streams import read_output
from gpuplatform_client.models.deployments import (
    DeploymentEventInfo,
    DeploymentInfo,
    DeploymentSpec,
    DeploymentTokenInfo,
    FolderDraftsInfo,
    IssuedDeploymentToken,
    PlacementInfo,
    ReplicaInfo,
    RevisionInfo,
    RevisionSpec,
    RuntimeVariantInfo,
    ScalingInfo,
    ScalingRuleInfo,
    TokenUsageInfo,
)


def deployments(**query: str) -> ApiOperation[ResultPage[DeploymentInfo]]:
    """Yield deployments, newest first; `name`, `owner`, `project` and `ended` ("true") select."""
    return ApiOperation("GET", "deployments/", page(DeploymentInfo), FIRST_PAGE | query)


def deployment(deployment_id: str) -> ApiOperation[DeploymentInfo]:
    """Return a deployment."""
    return ApiOperation("GET", _path(deployment_id), one(DeploymentInfo))


def create_deployment(spec: DeploymentSpec) -> ApiOperation[DeploymentInfo]:
    """Make a deployment with its first revision, and return it; repeated, the request makes nothing twice."""
    return ApiOperation("POST", "deployments/", one(DeploymentInfo), body=body_of(spec), headers=idempotency_key())


def change_deployment(deployment_id: str, **settings: Any) -> ApiOperation[DeploymentInfo]:
    """Change settings: `replicas`, `public`, `sticky`, `concurrency`, `strategy`, `canary_steps` and others."""
    return ApiOperation("PATCH", _path(deployment_id), one(DeploymentInfo), body=settings)


def set_deployment_hosts(deployment_id: str, hosts: list[str]) -> ApiOperation[DeploymentInfo]:
    """Have these host names lead to a deployment, and no others; superadmins alone."""
    return ApiOperation("PUT", _path(deployment_id, "hosts/"), one(DeploymentInfo), body={"hosts": hosts})


def scale_deployment(deployment_id: str, replicas: int) -> ApiOperation[DeploymentInfo]:
    """Have so many replicas serve."""
    return change_deployment(deployment_id, replicas=replicas)


def deployment_drafts(folder: str, path: str = "") -> ApiOperation[FolderDraftsInfo]:
    """Return what a folder proposes: its `model-definition.yaml`, and models of MLflow, the newest first."""
    return ApiOperation("GET", "deployment-drafts/", one(FolderDraftsInfo), {"folder": folder, "path": path})


def revisions(deployment_id: str) -> ApiOperation[ResultPage[RevisionInfo]]:
    """Yield the revisions of a deployment, newest first."""
    return ApiOperation("GET", _path(deployment_id, "revisions/"), page(RevisionInfo), FIRST_PAGE)


def create_revision(deployment_id: str, spec: RevisionSpec, *, activate: bool = True) -> ApiOperation[RevisionInfo]:
    """Make a revision, and have the replicas replaced by it, one after the other."""
    body = body_of(spec) | {"activate": activate}
    path = _path(deployment_id, "revisions/")
    return ApiOperation("POST", path, one(RevisionInfo), body=body, headers=idempotency_key())


def activate_revision(deployment_id: str, number: int) -> ApiOperation[DeploymentInfo]:
    """Have the replicas replaced by those of a revision, be it an older one."""
    return _changed(deployment_id, f"revisions/{number}/activate/")


def roll_back(deployment_id: str) -> ApiOperation[DeploymentInfo]:
    """Return to the revision before the current one."""
    return _changed(deployment_id, "rollback/")


def deployment_placement(spec: DeploymentSpec) -> ApiOperation[PlacementInfo]:
    """Return whether the replicas of a deployment to make could start now; makes nothing."""
    return ApiOperation("POST", "deployments/placement/", one(PlacementInfo), body=body_of(spec))


def revision_placement(deployment_id: str, spec: RevisionSpec) -> ApiOperation[PlacementInfo]:
    """Return whether the replicas of a revision to make could start now, beside those that serve; makes nothing."""
    return ApiOperation("POST", _path(deployment_id, "placement/"), one(PlacementInfo), body=body_of(spec))


def change_placement(
    deployment_id: str, *, revision: int | None = None, replicas: int | None = None
) -> ApiOperation[PlacementInfo]:
    """Return whether the replicas could start that an older revision, or another number, would launch."""
    asked = {"revision": revision} if revision is not None else {"replicas": replicas}
    return ApiOperation("POST", _path(deployment_id, "placement/"), one(PlacementInfo), body=asked)


def promote(deployment_id: str, *, to_all: bool = False) -> ApiOperation[DeploymentInfo]:
    """Pass the running step of a rollout by steps now, or all that are left."""
    path = _path(deployment_id, "promote/")
    return ApiOperation("POST", path, one(DeploymentInfo), body={"to_all": to_all}, headers=idempotency_key())


def restart_deployment(deployment_id: str) -> ApiOperation[DeploymentInfo]:
    """Have all replicas replaced, one after the other, by others of the same revision."""
    return _changed(deployment_id, "restart/")


def end_deployment(deployment_id: str) -> ApiOperation[DeploymentInfo]:
    """End a deployment with its replicas; its address serves no more."""
    return _changed(deployment_id, "end/")


def replicas(deployment_id: str) -> ApiOperation[ResultPage[ReplicaInfo]]:
    """Yield the replicas that have not ended, oldest first."""
    return ApiOperation("GET", _path(deployment_id, "replicas/"), page(ReplicaInfo), FIRST_PAGE)


def scaling(deployment_id: str) -> ApiOperation[ScalingInfo]:
    """Return how a deployment follows its load, with its rules."""
    return ApiOperation("GET", _path(deployment_id, "scaling/"), one(ScalingInfo))


def change_scaling(deployment_id: str, **settings: Any) -> ApiOperation[ScalingInfo]:
    """Change `min_replicas`, `max_replicas` (None: not scaled), `idle_seconds` (None: never sleeps) and others."""
    return ApiOperation("PATCH", _path(deployment_id, "scaling/"), one(ScalingInfo), body=settings)


def sleep_deployment(deployment_id: str) -> ApiOperation[ScalingInfo]:
    """Have no replicas run until a request comes."""
    return ApiOperation("POST", _path(deployment_id, "sleep/"), one(ScalingInfo), headers=idempotency_key())


def wake_deployment(deployment_id: str) -> ApiOperation[ScalingInfo]:
    """Have a deployment that sleeps run again before a request comes."""
    return ApiOperation("POST", _path(deployment_id, "wake/"), one(ScalingInfo), headers=idempotency_key())


def add_scaling_rule(
    deployment_id: str, metric: str, target: float, *, query: str = ""
) -> ApiOperation[ScalingRuleInfo]:
    """Add a rule: how much one replica is for of "outstanding", "requests", "gpu", or the result of a "query"."""
    body = {"metric": metric, "target": target, "query": query}
    return ApiOperation("POST", _path(deployment_id, "scaling/rules/"), one(ScalingRuleInfo), body=body)


def change_scaling_rule(deployment_id: str, rule_id: int, **changes: Any) -> ApiOperation[ScalingRuleInfo]:
    """Change the `target` of a rule, or whether it is `paused`."""
    return ApiOperation("PATCH", _path(deployment_id, f"scaling/rules/{rule_id}/"), one(ScalingRuleInfo), body=changes)


def remove_scaling_rule(deployment_id: str, rule_id: int) -> ApiOperation[None]:
    """Remove a rule; the number of replicas stays until another rule changes it."""
    return ApiOperation("DELETE", _path(deployment_id, f"scaling/rules/{rule_id}/"), nothing)


def deployment_tokens(deployment_id: str) -> ApiOperation[ResultPage[DeploymentTokenInfo]]:
    """Yield the tokens of a deployment, without their secrets."""
    return ApiOperation("GET", _path(deployment_id, "tokens/"), page(DeploymentTokenInfo), FIRST_PAGE)


def create_deployment_token(
    deployment_id: str, name: str, *, days: int | None = None, **limits: int
) -> ApiOperation[IssuedDeploymentToken]:
    """Make a token and return it with its secret, which is shown this once; without `days` it does not expire.

    Limits are `rate_per_minute`, `monthly_requests` and `monthly_tokens`; 0: none.
    """
    body = {"name": name, "days": days, **limits}
    return ApiOperation("POST", _path(deployment_id, "tokens/"), one(IssuedDeploymentToken), body=body)


def change_deployment_token(deployment_id: str, token_id: int, **limits: int) -> ApiOperation[DeploymentTokenInfo]:
    """Change limits of a token: `rate_per_minute`, `monthly_requests` and `monthly_tokens`."""
    return ApiOperation("PATCH", _path(deployment_id, f"tokens/{token_id}/"), one(DeploymentTokenInfo), body=limits)


def deployment_usage(deployment_id: str) -> ApiOperation[ResultPage[TokenUsageInfo]]:
    """Yield what each token, and requests without one, have used in each month, the newest first."""
    return ApiOperation("GET", _path(deployment_id, "usage/"), page(TokenUsageInfo), FIRST_PAGE)


def revoke_deployment_token(deployment_id: str, token_id: int) -> ApiOperation[None]:
    """Revoke a token at once."""
    return ApiOperation("DELETE", _path(deployment_id, f"tokens/{token_id}/"), nothing)


def deployment_events(deployment_id: str) -> ApiOperation[ResultPage[DeploymentEventInfo]]:
    """Yield what became of a deployment, newest first."""
    return ApiOperation("GET", _path(deployment_id, "events/"), page(DeploymentEventInfo), FIRST_PAGE)


def deployment_logs(deployment_id: str, tail: int = 500, *, replica: str = "") -> ApiOperation[str]:
    """Return the last lines of all replicas, or of one, each with its replica."""
    return ApiOperation("GET", _path(deployment_id, "logs/"), text, {"tail": tail, "replica": replica})


def follow_deployment_logs(deployment_id: str, *, replica: str = "") -> ApiStream[str]:
    """Yield the output of all replicas, or of one, in whole lines, until the deployment has ended."""
    return ApiStream(_path(deployment_id, "logs/follow/"), read_output, {"replica": replica})


def runtime_variants() -> ApiOperation[ResultPage[RuntimeVariantInfo]]:
    """Yield the runtime variants that a revision may name."""
    return ApiOperation("GET", "runtime-variants/", page(RuntimeVariantInfo), FIRST_PAGE)


def _path(deployment_id: str, rest: str = "") -> str:
    return f"deployments/{path_part(deployment_id)}/{rest}"


def _changed(deployment_id: str, change: str) -> ApiOperation[DeploymentInfo]:
    return ApiOperation("POST", _path(deployment_id, change), one(DeploymentInfo), headers=idempotency_key())
