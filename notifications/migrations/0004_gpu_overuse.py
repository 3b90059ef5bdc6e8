"""Announcements may be for the users of some resource groups."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0003_idle_rules'),
    ]

    operations = [
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('IDLE', 'IDLE'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED'), ('HOST_FAULTY', 'HOST_FAULTY'), ('HOST_BACK', 'HOST_BACK'), ('GPU_OVERUSE', 'GPU_OVERUSE')], max_length=16),
        ),
        migrations.AlterField(
            model_name='notificationpreference',
            name='kind',
            field=models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('IDLE', 'IDLE'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED'), ('HOST_FAULTY', 'HOST_FAULTY'), ('HOST_BACK', 'HOST_BACK'), ('GPU_OVERUSE', 'GPU_OVERUSE')], max_length=16),
        ),
    ]
