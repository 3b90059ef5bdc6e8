"""Superadmins may be told that an elastic pool makes no hosts."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0012_arrays'),
    ]

    operations = [
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('IDLE', 'IDLE'), ('PARK_ENDING', 'PARK_ENDING'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('RESIZE_REFUSED', 'RESIZE_REFUSED'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED'), ('HOST_FAULTY', 'HOST_FAULTY'), ('HOST_BACK', 'HOST_BACK'), ('WEBHOOK_DISABLED', 'WEBHOOK_DISABLED'), ('DEPLOYMENT_DOWN', 'DEPLOYMENT_DOWN'), ('DEPLOYMENT_UP', 'DEPLOYMENT_UP'), ('REVISION_FAILED', 'REVISION_FAILED'), ('ROLLOUT_DONE', 'ROLLOUT_DONE'), ('ARRAY_ENDED', 'ARRAY_ENDED'), ('ARRAY_FAILED', 'ARRAY_FAILED'), ('ARRAY_HELD', 'ARRAY_HELD'), ('TOKEN_EXPIRING', 'TOKEN_EXPIRING'), ('BUDGET_LOW', 'BUDGET_LOW'), ('BUDGET_SPENT', 'BUDGET_SPENT'), ('GPU_OVERUSE', 'GPU_OVERUSE'), ('OUTPUT_FLOOD', 'OUTPUT_FLOOD'), ('SHARED_LIMIT', 'SHARED_LIMIT'), ('POOL_FAILING', 'POOL_FAILING')], max_length=16),
        ),
        migrations.AlterField(
            model_name='notificationpreference',
            name='kind',
            field=models.CharField(choices=[('STARTED', 'STARTED'), ('ENDED', 'ENDED'), ('FAILED', 'FAILED'), ('ENDING', 'ENDING'), ('IDLE', 'IDLE'), ('PARK_ENDING', 'PARK_ENDING'), ('OUT_OF_MEMORY', 'OUT_OF_MEMORY'), ('RESIZE_REFUSED', 'RESIZE_REFUSED'), ('IMAGE_READY', 'IMAGE_READY'), ('IMAGE_FAILED', 'IMAGE_FAILED'), ('HOST_FAULTY', 'HOST_FAULTY'), ('HOST_BACK', 'HOST_BACK'), ('WEBHOOK_DISABLED', 'WEBHOOK_DISABLED'), ('DEPLOYMENT_DOWN', 'DEPLOYMENT_DOWN'), ('DEPLOYMENT_UP', 'DEPLOYMENT_UP'), ('REVISION_FAILED', 'REVISION_FAILED'), ('ROLLOUT_DONE', 'ROLLOUT_DONE'), ('ARRAY_ENDED', 'ARRAY_ENDED'), ('ARRAY_FAILED', 'ARRAY_FAILED'), ('ARRAY_HELD', 'ARRAY_HELD'), ('TOKEN_EXPIRING', 'TOKEN_EXPIRING'), ('BUDGET_LOW', 'BUDGET_LOW'), ('BUDGET_SPENT', 'BUDGET_SPENT'), ('GPU_OVERUSE', 'GPU_OVERUSE'), ('OUTPUT_FLOOD', 'OUTPUT_FLOOD'), ('SHARED_LIMIT', 'SHARED_LIMIT'), ('POOL_FAILING', 'POOL_FAILING')], max_length=16),
        ),
    ]
