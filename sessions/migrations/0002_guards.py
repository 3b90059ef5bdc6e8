"""What no code path may break: leases stay within hosts and devices; what leases count in stands still."""

from django.db import migrations

SQL = """
-- Guards find what they judge by arrays of ids, never by joining the rows of the statement: a connection keeps the plan
-- of such a join, and one made for a single row would compare the thousands of a pass each with each.

CREATE FUNCTION compute_guard_leases() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hosts bigint[] := ARRAY(SELECT DISTINCT host_id FROM new_rows);
BEGIN
    -- One after the other per host, so that the sums below see every committed lease.
    PERFORM 1 FROM resources_host WHERE id = ANY (hosts) ORDER BY id FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT 1 FROM resources_host host
        JOIN (
            SELECT host_id, sum(cpu) AS cpu, sum(memory) AS memory FROM compute_lease
            WHERE host_id = ANY (hosts) GROUP BY host_id
        ) held ON held.host_id = host.id
        WHERE held.cpu > host.cpu OR held.memory > host.memory
    ) THEN
        RAISE EXCEPTION 'leases exceed their host' USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_within_host';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lease_within_host_insert AFTER INSERT ON compute_lease
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_leases();
CREATE TRIGGER lease_within_host_update AFTER UPDATE ON compute_lease
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_leases();

CREATE FUNCTION compute_guard_shares() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gpus bigint[] := ARRAY(SELECT DISTINCT gpu_id FROM new_rows);
    locked integer;
BEGIN
    PERFORM 1 FROM resources_gpu WHERE id = ANY (gpus) ORDER BY id FOR NO KEY UPDATE;
    GET DIAGNOSTICS locked = ROW_COUNT;
    IF locked < cardinality(gpus) THEN
        RAISE EXCEPTION 'share on a GPU that is not there'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'share_gpu_exists';
    END IF;
    -- Holds fgpu_per_gpu still until this transaction ends.
    PERFORM 1 FROM resources_resourcegroup WHERE id IN (
        SELECT host.group_id FROM resources_gpu gpu JOIN resources_host host ON host.id = gpu.host_id
        WHERE gpu.id = ANY (gpus)
    ) ORDER BY id FOR SHARE;
    IF EXISTS (
        SELECT 1 FROM resources_gpu gpu
        JOIN resources_host host ON host.id = gpu.host_id
        JOIN resources_resourcegroup grp ON grp.id = host.group_id
        JOIN (
            SELECT gpu_id, sum(milli) AS milli FROM compute_gpushare WHERE gpu_id = ANY (gpus) GROUP BY gpu_id
        ) held ON held.gpu_id = gpu.id
        WHERE held.milli > grp.fgpu_per_gpu * 1000
    ) THEN
        RAISE EXCEPTION 'shares exceed their GPU' USING ERRCODE = 'check_violation', CONSTRAINT = 'shares_within_gpu';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER shares_within_gpu_insert AFTER INSERT ON compute_gpushare
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_shares();
CREATE TRIGGER shares_within_gpu_update AFTER UPDATE ON compute_gpushare
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_shares();

CREATE FUNCTION compute_guard_lost_gpus() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM compute_gpushare WHERE gpu_id = ANY (ARRAY(SELECT id FROM old_rows))) THEN
        RAISE EXCEPTION 'a GPU cannot go while sessions hold shares of it'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'share_gpu_exists';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER share_gpu_exists AFTER DELETE ON resources_gpu
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_guard_lost_gpus();

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

UNDO = """
DROP TRIGGER gpu_host_fixed_while_leased ON resources_gpu;
DROP TRIGGER share_gpu_exists ON resources_gpu;
DROP TRIGGER host_group_fixed_while_leased ON resources_host;
DROP TRIGGER group_unit_fixed_while_leased ON resources_resourcegroup;
DROP FUNCTION compute_guard_lost_gpus, compute_guard_gpu_host, compute_guard_host_group, compute_guard_group CASCADE;
DROP FUNCTION compute_guard_shares, compute_guard_leases CASCADE;
"""


class Migration(migrations.Migration):
    """Adds the guards; resources' tables are guarded from here because leases are known only here."""

    dependencies = [("compute", "0001_initial"), ("resources", "0001_initial")]
    operations = [migrations.RunSQL(SQL, UNDO)]
