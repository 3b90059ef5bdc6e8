"""What holds at every moment, asked of the database itself in one query."""

from typing import Final

from django.db import connection

_BROKEN: Final = """
    SELECT 'host ' || host.name || ' holds more than it has'
    FROM resources_host host JOIN (
        SELECT host_id, sum(cpu * core_milli) AS cpu, sum(memory) AS memory FROM compute_lease GROUP BY host_id
    ) held ON held.host_id = host.id
    WHERE held.cpu > host.cpu * 1000 OR held.memory > host.memory
    UNION ALL
    SELECT 'GPU ' || gpu.uuid || ' holds more than it has'
    FROM resources_gpu gpu JOIN resources_host host ON host.id = gpu.host_id
    JOIN resources_resourcegroup grp ON grp.id = host.group_id
    JOIN (SELECT gpu_id, sum(milli) AS milli FROM compute_gpushare GROUP BY gpu_id) held ON held.gpu_id = gpu.id
    WHERE held.milli > grp.fgpu_per_gpu * 1000
    UNION ALL
    SELECT session.id || ' is ' || session.status || CASE WHEN lease.session_id IS NULL THEN ' without' ELSE ' with' END
        || ' a lease, or one that is not its request'
    FROM compute_session session LEFT JOIN compute_lease lease ON lease.session_id = session.id
    LEFT JOIN (
        SELECT lease_id, sum(milli) AS milli FROM compute_gpushare GROUP BY lease_id
    ) shares ON shares.lease_id = session.id
    WHERE (session.status IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING')) <> (lease.session_id IS NOT NULL)
       OR lease.session_id IS NOT NULL AND (session.host_id, session.cpu, session.memory, session.fgpu)
          IS DISTINCT FROM (lease.host_id, lease.cpu, lease.memory, coalesce(shares.milli, 0))
    UNION ALL
    SELECT 'a lease of nobody: ' || session_id FROM compute_lease
    WHERE session_id NOT IN (SELECT id FROM compute_session) OR host_id NOT IN (SELECT id FROM resources_host)
    UNION ALL
    SELECT 'a share of nothing: ' || lease_id FROM compute_gpushare
    WHERE lease_id NOT IN (SELECT session_id FROM compute_lease) OR gpu_id NOT IN (SELECT id FROM resources_gpu)
    UNION ALL
    SELECT 'an owner holds more than the policy allows: ' || policy.name
    FROM (
        SELECT owner_id, count(*) AS sessions, sum(cpu) AS cpu, sum(memory) AS memory, sum(fgpu) AS fgpu
        FROM compute_session WHERE status IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING') GROUP BY owner_id
    ) held JOIN accounts_user owner ON owner.id = held.owner_id
    JOIN accounts_resourcepolicy policy ON policy.id = owner.policy_id
    WHERE held.sessions > policy.max_sessions OR held.cpu > policy.cpu OR held.memory > policy.memory
       OR held.fgpu > policy.fgpu
"""

_BROKEN_CHAINS: Final = """
    SELECT session.id || ' is ' || session.status || ', which its events do not say'
    FROM compute_session session LEFT JOIN (
        SELECT session_id, count(*) AS events, (array_agg(new_status ORDER BY id DESC))[1] AS last,
               bool_and(old_status = before) AS is_chain
        FROM (
            SELECT id, session_id, old_status, new_status,
                   lag(new_status, 1, '') OVER (PARTITION BY session_id ORDER BY id) AS before
            FROM compute_sessionevent
        ) event GROUP BY session_id
    ) told ON told.session_id = session.id
    WHERE told.last IS DISTINCT FROM session.status OR NOT told.is_chain
"""


_HALF_CLUSTERS: Final = """
    SELECT cluster.id || ' has ' || count(lease.session_id) || ' leases of ' || cluster.size
    FROM compute_cluster cluster JOIN compute_session member ON member.cluster_id = cluster.id
    LEFT JOIN compute_lease lease ON lease.session_id = member.id
    WHERE NOT (cluster.runs_on_all AND member.result = 'SUCCESS') AND NOT member.is_elastic
    GROUP BY cluster.id HAVING count(lease.session_id) NOT IN (0, count(*))
    UNION ALL
    SELECT cluster.id || ' has something left over'
    FROM compute_cluster cluster JOIN compute_session member ON member.cluster_id = cluster.id
    LEFT JOIN compute_lease lease ON lease.session_id = member.id
    GROUP BY cluster.id
    HAVING (cluster.network IS NOT NULL OR cluster.host_addresses <> '[]') AND count(lease.session_id) = 0
        OR bool_and(member.ended_at IS NOT NULL) AND (cluster.ended_at IS NULL OR cluster.private_key <> '')
    UNION ALL
    SELECT cluster.id || ' does not have its members' FROM compute_cluster cluster
    WHERE coalesce(cluster.max_size, cluster.size) <> (
        SELECT count(*) FROM compute_session WHERE cluster_id = cluster.id
    )
"""


def half_clusters() -> list[str]:
    """Return the clusters of which only some members hold something, or with something left: none once all settled."""
    return _texts(_HALF_CLUSTERS)


def broken_amounts() -> list[str]:
    """Return what is over-allocated, or granted otherwise than asked for, in words."""
    return _texts(_BROKEN)


def broken_invariants() -> list[str]:
    """Return that, and the sessions whose events are not a chain that ends in their status."""
    return _texts(f"{_BROKEN} UNION ALL {_BROKEN_CHAINS}")


def _texts(query: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [text for (text,) in cursor.fetchall()]
