"""What a revision says never changes, and the runtime variants that there are at first."""

from django.db import migrations

IMMUTABLE = """
CREATE FUNCTION deployments_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A user or folder that is deleted is forgotten; nothing else changes.
    IF to_jsonb(NEW) - ARRAY['created_by_id', 'folder_id'] IS DISTINCT FROM
       to_jsonb(OLD) - ARRAY['created_by_id', 'folder_id'] THEN
        RAISE EXCEPTION 'a revision never changes; make another' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_change BEFORE UPDATE ON deployments_revision
FOR EACH ROW EXECUTE FUNCTION deployments_refuse_change();
CREATE TRIGGER refuse_change BEFORE UPDATE ON deployments_revisionmount
FOR EACH ROW EXECUTE FUNCTION deployments_refuse_change();
"""
MUTABLE = """
DROP TRIGGER refuse_change ON deployments_revision;
DROP TRIGGER refuse_change ON deployments_revisionmount;
DROP FUNCTION deployments_refuse_change();
"""
VARIANTS = [
    {
        "name": "vllm",
        "title": "vLLM",
        "command": 'exec vllm serve "$MODEL_PATH" --host 0.0.0.0 --port "$PORT"',
        "port": 8000,
        "health_path": "/health",
    },
    {
        "name": "sglang",
        "title": "SGLang",
        "command": 'exec python3 -m sglang.launch_server --model-path "$MODEL_PATH" --host 0.0.0.0 --port "$PORT"',
        "port": 30000,
        "health_path": "/health",
    },
    {
        "name": "llama.cpp",
        "title": "llama.cpp",
        "command": 'exec llama-server --model "$(ls "$MODEL_PATH"/*.gguf | head -n 1)" --host 0.0.0.0 --port "$PORT"',
        "port": 8080,
        "health_path": "/health",
    },
    {
        "name": "tgi",
        "title": "Text Generation Inference",
        "command": 'exec text-generation-launcher --model-id "$MODEL_PATH" --hostname 0.0.0.0 --port "$PORT"',
        "port": 8080,
        "health_path": "/health",
    },
    {
        "name": "triton",
        "title": "Triton Inference Server",
        "command": 'exec tritonserver --model-repository="$MODEL_PATH" --http-port="$PORT"',
        "port": 8000,
        "health_path": "/v2/health/ready",
    },
    {
        "name": "mlflow",
        "title": "MLflow model",
        "command": 'exec mlflow models serve --model-uri "$MODEL_PATH" --host 0.0.0.0 --port "$PORT" --env-manager local',
        "port": 5000,
        "health_path": "/health",
    },
    {"name": "custom", "title": "Custom", "command": "", "port": 8000, "health_path": "/"},
]


def add_variants(apps, schema_editor):
    variant = apps.get_model("deployments", "RuntimeVariant")
    for fields in VARIANTS:
        variant.objects.get_or_create(name=fields["name"], defaults=fields)


class Migration(migrations.Migration):
    dependencies = [("deployments", "0001_initial")]

    operations = [
        migrations.RunSQL(IMMUTABLE, MUTABLE),
        migrations.RunPython(add_variants, migrations.RunPython.noop),
    ]
