"""A drain that an administrator has set stands: a host that drains itself may only bring its end forward."""

from django.db import migrations

KEEP_DRAIN = """
CREATE FUNCTION hostaccess_keep_drain() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF hostaccess_name() IS NOT NULL AND (NEW.drain_by IS NULL OR NEW.drain_by > OLD.drain_by) THEN
        RAISE EXCEPTION 'the drain of host % cannot be put off by the host', OLD.name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION hostaccess_keep_drain() FROM PUBLIC;
CREATE TRIGGER hostaccess_keep_drain BEFORE UPDATE OF drain_by ON resources_host FOR EACH ROW
WHEN (OLD.drain_by IS DISTINCT FROM NEW.drain_by) EXECUTE FUNCTION hostaccess_keep_drain();
"""
FORGET = """
DROP TRIGGER hostaccess_keep_drain ON resources_host;
DROP FUNCTION hostaccess_keep_drain();
"""


class Migration(migrations.Migration):
    """Guards the column, which hosts may write since they drain themselves."""

    dependencies = [("hostaccess", "0001_initial"), ("resources", "0022_elastic_hosts")]
    operations = [migrations.RunSQL(KEEP_DRAIN, FORGET)]
