"""Capacity guards: triggers that refuse leases and GPU shares beyond their host or device, and changes under them.

Each guard raises an error that names it as the constraint; `sessions/tests/test_guards.py` tests them all. Those of
leases and shares run once per statement, on transition tables. They select by arrays of ids instead of joining the
transition table: a connection caches the plan of such a join, and one made for a single row would be a nested loop
over the thousands of rows of a scheduler pass.
"""

from django.db import migrations

# The leases of a host add up to at most its CPU cores and memory.
LEASES_WITHIN_HOST = """
CREATE FUNCTION compute_guard_leases() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hosts bigint[] := ARRAY(SELECT DISTINCT host_id FROM new_rows);
BEGIN
    -- Serialize per host, so that the sums below include every committed lease.
    PERFORM 1 FROM resources_host WHERE id = ANY (hosts) ORDER BY id FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT 1 FROM resources_host host
        JOIN (
            SELECT host_id, sum(cpu) AS cpu, sum(memory) AS memory FROM compute_lease
            WHERE host_id = ANY (hosts) GROUP BY host_id
        ) leased ON leased.host_id = host.id
        WHERE leased.cpu > host.cpu OR leased.memory > host.memory
    ) THEN
        RAISE EXCEPTION 'leases exceed their host' USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_within_host';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lease_within_host_insert AFTER INSERT ON compute_lease
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_leases();
CREATE TRIGGER lease_within_host_update AFTER UPDATE ON compute_lease
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_leases();
"""

# The shares of a GPU add up to at most its group's fgpu_per_gpu, and belong to GPUs that exist.
SHARES_WITHIN_GPU = """
CREATE FUNCTION compute_guard_shares() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gpus bigint[] := ARRAY(SELECT DISTINCT gpu_id FROM new_rows);
    locked integer;
    hosts bigint[];
    groups bigint[];
    min_milli integer;  -- the smallest capacity of these GPUs, in milli-fGPU
BEGIN
    SELECT count(*), array_agg(DISTINCT host_id) INTO locked, hosts
    FROM (SELECT host_id FROM resources_gpu WHERE id = ANY (gpus) ORDER BY id FOR NO KEY UPDATE) AS locked_rows;
    IF locked < cardinality(gpus) THEN
        RAISE EXCEPTION 'share of a GPU that does not exist'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'share_gpu_exists';
    END IF;
    groups := ARRAY(SELECT DISTINCT group_id FROM resources_host WHERE id = ANY (hosts));
    -- Lock fgpu_per_gpu until this transaction ends.
    SELECT min(fgpu_per_gpu) * 1000 INTO min_milli
    FROM (SELECT fgpu_per_gpu FROM resources_resourcegroup WHERE id = ANY (groups) ORDER BY id FOR SHARE) AS locked_rows;
    IF EXISTS (
        SELECT 1 FROM (
            SELECT gpu_id, sum(milli) AS milli FROM compute_gpushare WHERE gpu_id = ANY (gpus)
            GROUP BY gpu_id HAVING sum(milli) > min_milli  -- cheap first filter: few GPUs, if any, exceed the smallest
        ) shared
        JOIN resources_gpu gpu ON gpu.id = shared.gpu_id
        JOIN resources_host host ON host.id = gpu.host_id
        JOIN resources_resourcegroup grp ON grp.id = host.group_id
        WHERE shared.milli > grp.fgpu_per_gpu * 1000
    ) THEN
        RAISE EXCEPTION 'shares exceed their GPU' USING ERRCODE = 'check_violation', CONSTRAINT = 'shares_within_gpu';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER shares_within_gpu_insert AFTER INSERT ON compute_gpushare
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_shares();
CREATE TRIGGER shares_within_gpu_update AFTER UPDATE ON compute_gpushare
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_shares();
"""

# A GPU is not deleted while leases hold shares of it. (Shares have no foreign key; see 0003_grant_guard.)
SHARED_GPU_EXISTS = """
CREATE FUNCTION compute_guard_lost_gpus() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM compute_gpushare WHERE gpu_id = ANY (ARRAY(SELECT id FROM old_rows))) THEN
        RAISE EXCEPTION 'a GPU cannot be deleted while sessions hold shares of it'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'share_gpu_exists';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER share_gpu_exists AFTER DELETE ON resources_gpu
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_lost_gpus();
"""

# fgpu_per_gpu of a group does not change while leases exist in it, because shares are in this unit.
GROUP_UNIT_FIXED = """
CREATE FUNCTION compute_guard_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM compute_lease lease JOIN resources_host host ON host.id = lease.host_id
               WHERE host.group_id = NEW.id) THEN
        RAISE EXCEPTION 'fgpu_per_gpu cannot change while sessions hold leases in the group'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'group_unit_fixed_while_leased';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER group_unit_fixed_while_leased AFTER UPDATE OF fgpu_per_gpu ON resources_resourcegroup
    FOR EACH ROW WHEN (OLD.fgpu_per_gpu <> NEW.fgpu_per_gpu) EXECUTE FUNCTION compute_guard_group();
"""

# A host does not change its group while leases exist on it, for the same reason.
HOST_GROUP_FIXED = """
CREATE FUNCTION compute_guard_host_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM compute_lease WHERE host_id = NEW.id) THEN
        RAISE EXCEPTION 'a host cannot change its group while sessions hold leases on it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'host_group_fixed_while_leased';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER host_group_fixed_while_leased AFTER UPDATE OF group_id ON resources_host
    FOR EACH ROW WHEN (OLD.group_id <> NEW.group_id) EXECUTE FUNCTION compute_guard_host_group();
"""

# A GPU does not change its host while leases hold shares of it.
GPU_HOST_FIXED = """
CREATE FUNCTION compute_guard_gpu_host() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM compute_gpushare WHERE gpu_id = NEW.id) THEN
        RAISE EXCEPTION 'a GPU cannot change its host while sessions hold shares of it'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'gpu_host_fixed_while_leased';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER gpu_host_fixed_while_leased AFTER UPDATE OF host_id ON resources_gpu
    FOR EACH ROW WHEN (OLD.host_id <> NEW.host_id) EXECUTE FUNCTION compute_guard_gpu_host();
"""

GUARDS = {  # function: SQL that creates it and its triggers
    "compute_guard_leases": LEASES_WITHIN_HOST,
    "compute_guard_shares": SHARES_WITHIN_GPU,
    "compute_guard_lost_gpus": SHARED_GPU_EXISTS,
    "compute_guard_group": GROUP_UNIT_FIXED,
    "compute_guard_host_group": HOST_GROUP_FIXED,
    "compute_guard_gpu_host": GPU_HOST_FIXED,
}


class Migration(migrations.Migration):
    """Adds the capacity guards; those on tables of `resources` are here because leases are known only here."""

    dependencies = [("compute", "0001_initial"), ("resources", "0001_initial")]
    operations = [
        migrations.RunSQL(sql, f"DROP FUNCTION {function} CASCADE") for function, sql in GUARDS.items()
    ]
