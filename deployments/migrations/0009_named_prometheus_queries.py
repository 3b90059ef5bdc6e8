"""Queries of Prometheus get names: rules name one, and owners write no PromQL.

The queries of rules that there are become disabled ones, which change nothing until an administrator enables them.
"""

from typing import Any

from django.core.validators import RegexValidator
from django.db import migrations, models


def name_queries(apps: Any, schema_editor: Any) -> None:
    """Have each expression of a rule be a named query, and its rules name it."""
    query_model, rule_model = (apps.get_model("deployments", name) for name in ("PrometheusQuery", "ScalingRule"))
    used = rule_model.objects.filter(metric="query").order_by("query").values_list("query", flat=True).distinct()
    for number, expression in enumerate(list(used), 1):
        name, title = f"rule-{number}", f"Query {number} of a rule"
        query_model.objects.create(name=name, title=title, expression=expression, is_enabled=False)
        rule_model.objects.filter(metric="query", query=expression).update(query=name)


def write_expressions(apps: Any, schema_editor: Any) -> None:
    """Have rules hold their expressions again."""
    for query in apps.get_model("deployments", "PrometheusQuery").objects.all():
        rules = apps.get_model("deployments", "ScalingRule").objects.filter(metric="query", query=query.name)
        rules.update(query=query.expression)


class Migration(migrations.Migration):
    dependencies = [("deployments", "0008_preemptible_deployments")]

    operations = [
        migrations.CreateModel(
            name="PrometheusQuery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=64, unique=True, validators=[RegexValidator("^[a-z0-9][a-z0-9._-]*$")]
                    ),
                ),
                ("title", models.CharField(max_length=100)),
                (
                    "expression",
                    models.CharField(
                        help_text=(
                            "In PromQL, its result one number; $deployment is the id of the deployment, $name its name"
                        ),
                        max_length=1000,
                    ),
                ),
                (
                    "is_enabled",
                    models.BooleanField(
                        default=True,
                        help_text="Offered for rules; the load of one that is not is unknown",
                        verbose_name="enabled",
                    ),
                ),
            ],
            options={"ordering": ("name",), "verbose_name_plural": "Prometheus queries"},
        ),
        migrations.AlterField(
            model_name="scalingrule",
            name="query",
            field=models.CharField(blank=True, help_text="Name of a Prometheus query", max_length=1000),
        ),
        migrations.RunPython(name_queries, write_expressions),
    ]
