"""Each measurement of a GPU gets an entry in the audit log, which hosts that report them may not write."""

from django.db import migrations

AUDIT = """
CREATE FUNCTION hostaccess_audit_measurement() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    measured record;
    figures jsonb;
BEGIN
    SELECT host.id, host.name, gpu.uuid INTO measured
    FROM resources_gpu gpu JOIN resources_host host ON host.id = gpu.host_id WHERE gpu.id = NEW.gpu_id;
    IF hostaccess_name() IS NOT NULL AND 60 <= (
        SELECT count(*) FROM accounts_auditentry
        WHERE object_type = 'resources.Host' AND object_id = measured.id::text AND action = 'measured'
        AND at > clock_timestamp() - interval '1 hour'
    ) THEN
        RAISE EXCEPTION 'host % has reported sixty measurements within the hour', measured.name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.measured_at NOT BETWEEN '2020-01-01Z' AND clock_timestamp() + interval '1 hour' THEN
        RAISE EXCEPTION 'a measurement cannot be of %', NEW.measured_at USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT jsonb_object_agg(now.key, jsonb_build_array(before.value, now.value)) INTO figures
    FROM jsonb_each_text(to_jsonb(NEW)) now
    LEFT JOIN jsonb_each_text(CASE TG_OP WHEN 'UPDATE' THEN to_jsonb(OLD) END) before ON before.key = now.key
    WHERE now.key IN ('measured_at', 'driver', 'failed', 'memory_exact', 'share_error_points')
    AND coalesce(now.value, '') <> coalesce(before.value, '');
    INSERT INTO accounts_auditentry
        (at, actor_id, actor_name, source, address, action, object_type, object_id, object_text, changes)
    VALUES (
        clock_timestamp(), NULL, left(split_part(NEW.reported_by, '@', 1), 64) || '@' || measured.name, 'command', NULL,
        'measured', 'resources.Host', measured.id::text, measured.name,
        jsonb_build_object('gpu', jsonb_build_array(NULL, measured.uuid)) || coalesce(figures, '{}')
    );
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION hostaccess_audit_measurement() FROM PUBLIC;
CREATE TRIGGER hostaccess_audit_measurement AFTER INSERT OR UPDATE ON resources_gpumeasurement FOR EACH ROW
EXECUTE FUNCTION hostaccess_audit_measurement();
"""
FORGET = """
DROP TRIGGER hostaccess_audit_measurement ON resources_gpumeasurement;
DROP FUNCTION hostaccess_audit_measurement();
"""


class Migration(migrations.Migration):
    """Sixty an hour of a host at most: the log is the superadmins' to read."""

    dependencies = [
        ("hostaccess", "0002_drains_stand"),
        ("resources", "0024_gpu_measurements"),
        ("accounts", "0014_audit_source"),
    ]
    operations = [migrations.RunSQL(AUDIT, FORGET)]
