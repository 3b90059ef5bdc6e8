"""The tables of accounts: users, credentials, policies, projects, invitations and the audit log.

Used by arrays, deployments, endpoints, folders, gpuplatform, hostaccess, hostworker, imports, notifications,
operations, pages, resources, scheduler, sessions, specs, sshserver and webhooks.
"""

from accounts.models.audit import AuditEntry, AuditSource
from accounts.models.invitations import AccountInvitation
from accounts.models.policies import DEFAULT_LIMITS, DEFAULT_WEIGHT, ResourcePolicy
from accounts.models.projects import Membership, Project, ProjectQuerySet, ProjectRole
from accounts.models.users import (
    ApiToken,
    ApiTokenManager,
    LoginSession,
    SshHostKey,
    SshKey,
    TokenScope,
    User,
    UserManager,
)
