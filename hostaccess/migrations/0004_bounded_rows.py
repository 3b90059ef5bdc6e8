"""Rows that hosts insert are bounded, each table's by the trigger that hostaccess/roles.py puts there with the grants."""

from django.db import migrations

BOUND_ROWS = """
CREATE FUNCTION hostaccess_bound_rows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    alike text := replace(TG_ARGV[0], 'added.', '($1).');
    most bigint := TG_ARGV[1];
    number bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %I held WHERE %s LIMIT $2) found', TG_TABLE_NAME, alike)
    INTO number USING NEW, most;
    IF number >= most THEN
        RAISE EXCEPTION 'no more than % such rows of % by hosts', most, TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION hostaccess_bound_rows() FROM PUBLIC;
"""


class Migration(migrations.Migration):
    """Counts as far as the bound, by an index."""

    dependencies = [("hostaccess", "0003_measurements_are_audited")]
    operations = [migrations.RunSQL(BOUND_ROWS, "DROP FUNCTION hostaccess_bound_rows() CASCADE")]
