"""Superadmins may be told who holds most of what all sessions of a host share."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0009_output_flood'),
    ]

    operations = [
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('IDLE', 'IDLE'), ('PARK_ENDING', 'PARK_ENDING'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('RESIZE_REFUSED', 'RESIZE_REFUSED'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED'), ('HOST_FAULTY', 'HOST_FAULTY'), ('HOST_BACK', 'HOST_BACK'), ('WEBHOOK_DISABLED', 'WEBHOOK_DISABLED'), ('GPU_OVERUSE', 'GPU_OVERUSE'), ('OUTPUT_FLOOD', 'OUTPUT_FLOOD'), ('SHARED_LIMIT', 'SHARED_LIMIT')], max_length=16),
        ),
        migrations.AlterField(
            model_name='notificationpreference',
            name='kind',
            field=models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('IDLE', 'IDLE'), ('PARK_ENDING', 'PARK_ENDING'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('RESIZE_REFUSED', 'RESIZE_REFUSED'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED'), ('HOST_FAULTY', 'HOST_FAULTY'), ('HOST_BACK', 'HOST_BACK'), ('WEBHOOK_DISABLED', 'WEBHOOK_DISABLED'), ('GPU_OVERUSE', 'GPU_OVERUSE'), ('OUTPUT_FLOOD', 'OUTPUT_FLOOD'), ('SHARED_LIMIT', 'SHARED_LIMIT')], max_length=16),
        ),
    ]
