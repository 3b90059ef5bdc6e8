"""The credentials of hosts, and the functions by which a host's role reaches what it may."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

# Who asks, by the role of the connection; NULL for the platform itself, whose role is no host's. These run with the
# rights of the platform, so that a host need not read the table of credentials.
IDENTITY = """
CREATE FUNCTION hostaccess_name() RETURNS varchar LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$ SELECT name FROM hostaccess_hostaccess WHERE role = session_user $$;
CREATE FUNCTION hostaccess_group() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$ SELECT group_id FROM hostaccess_hostaccess WHERE role = session_user $$;
CREATE FUNCTION hostaccess_host() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
AS $$
    SELECT host.id FROM hostaccess_hostaccess access JOIN resources_host host ON host.name = access.name
    WHERE access.role = session_user
$$;
"""
# What an engine knows of an image is entered where nothing is known yet, whoever added the image.
COMPLETE_IMAGE = """
CREATE FUNCTION resources_complete_image(image bigint, found_architecture varchar, found_size bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE resources_image SET architecture = left(found_architecture, 16) WHERE id = image AND architecture = '';
    UPDATE resources_image SET size = found_size WHERE id = image AND size IS NULL;
END $$;
"""
# The row of a folder whose files are gone. Mounts of sessions on other hosts refer to it, which a host does not see.
FORGET_FOLDER = """
CREATE FUNCTION folders_forget_folder(folder varchar) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM FROM folders_folder WHERE id = folder AND deleting_at IS NOT NULL FOR UPDATE;
    IF FOUND THEN
        UPDATE compute_mount SET folder_id = NULL WHERE folder_id = folder;
        DELETE FROM folders_foldershare WHERE folder_id = folder;
        DELETE FROM folders_upload WHERE folder_id = folder;
        DELETE FROM folders_folder WHERE id = folder;
    END IF;
END $$;
"""
FUNCTIONS = {
    "hostaccess_name(), hostaccess_group(), hostaccess_host()": IDENTITY,
    "resources_complete_image(bigint, varchar, bigint)": COMPLETE_IMAGE,
    "folders_forget_folder(varchar)": FORGET_FOLDER,
}


class Migration(migrations.Migration):
    """Adds the table and the functions, which nobody else may call."""

    initial = True
    dependencies = [("resources", "0007_app_hints_and_warm_up"), ("folders", "0004_conflicts_of_uploads")]
    operations = [
        migrations.CreateModel(
            name="HostAccess",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                (
                    "token_digest",
                    models.CharField(blank=True, help_text="SHA-256 of the token to join with", max_length=64),
                ),
                ("token_expires_at", models.DateTimeField(blank=True, null=True)),
                (
                    "role",
                    models.CharField(
                        help_text="Of PostgreSQL; its Redis users are named after it", max_length=63, unique=True
                    ),
                ),
                ("redis_digest", models.CharField(blank=True, help_text="SHA-256 of its Redis password", max_length=64)),
                (
                    "encrypted_key",
                    models.BinaryField(default=bytes, help_text="Signs requests to its gateway; see hostaccess.keys"),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("joined_at", models.DateTimeField(blank=True, null=True)),
                (
                    "group",
                    models.ForeignKey(
                        help_text="Which it joins",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="resources.resourcegroup",
                    ),
                ),
            ],
            options={"ordering": ("name",), "verbose_name": "host access", "verbose_name_plural": "accesses of hosts"},
        ),
        *(
            migrations.RunSQL(f"{sql} REVOKE EXECUTE ON FUNCTION {names} FROM PUBLIC", f"DROP FUNCTION {names}")
            for names, sql in FUNCTIONS.items()
        ),
    ]
