"""Whether GPU time that a session leaves idle may be used by others."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('resources', '0007_app_hints_and_warm_up'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcegroup',
            name='sharing',
            field=models.CharField(choices=[('cap', 'cap: never more GPU time than the share'), ('burst', 'burst: GPU time that others leave idle may be used as well')], default='cap', help_text="What sessions leave idle of their shares of a GPU's time is lost (cap), or used by the others on that GPU and given back within a fifth of a second (burst). It holds for running sessions within seconds. Memory is never lent, and GPUs shared through MPS are not affected.", max_length=8, verbose_name='idle GPU time'),
        ),
    ]
