"""What fgd did, balance does better: groups with the one get the other."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('resources', '0026_accelerators'),
    ]

    operations = [
        migrations.AlterField(
            model_name='resourcegroup',
            name='placement',
            field=models.CharField(choices=[('pack', 'pack: fill up hosts, keep whole GPUs whole'), ('spread', 'spread: as few neighbours as possible'), ('balance', 'balance: keep free GPUs useful for what is usually asked for')], default='pack', help_text='Which host takes a session', max_length=8),
        ),
        migrations.RunSQL(
            "UPDATE resources_resourcegroup SET placement = 'balance' WHERE placement = 'fgd'", migrations.RunSQL.noop
        ),
    ]
